# Sets up the folders that an example sees, and runs it: PAGE PROGRAM SCRIPT. The root is that of the host, apart from
# /mnt, /data, /tmp and /example, which are folders of the page. There is no network but the loopback interface.
set -e
page=$1 program=$2 root=$1/root
ip link set lo up
mount --bind "$root" "$root"
touch "$page/example/program"
mount --bind "$program" "$page/example/program"
for entry in /*; do
    name=${entry#/}
    case $name in
    mnt | data | tmp | proc | example) ;;
    *)
        if [[ -L $entry ]]; then
            cp -Pn "$entry" "$root/"
        elif [[ -d $entry ]]; then
            mkdir -p "$root/$name"
            mount --rbind "$entry" "$root/$name"
        fi
        ;;
    esac
done
for name in mnt data tmp example; do
    mkdir -p "$root/$name"
    mount --rbind "$page/$name" "$root/$name"
done
mkdir -p "$root/proc"
mount -t proc proc "$root/proc"
exec chroot "$root" /usr/bin/env -i \
    PATH=/tmp/home/bin:/example/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/tmp/home LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 \
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    EXAMPLE_SMALL="$EXAMPLE_SMALL" \
    bash -c 'cd /tmp/job && exec bash -e /example/script'
