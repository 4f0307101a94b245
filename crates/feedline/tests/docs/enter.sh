# Sets up the folders that an example sees, and runs it: PAGE PROGRAM SCRIPT. The root is that of the host, apart from
# /mnt, /data, /tmp and /example, which are folders of the page. There is no network but the loopback interface.
set -e
if [[ -n $EXAMPLE_SERVERS ]]; then
    # With an object store of its own.
    servers=$EXAMPLE_SERVERS
    export EXAMPLE_SERVERS= EXAMPLE_SERVED=yes
    ip link set lo up
    exec "$servers" run --only s3 -- bash -c "$BASH_EXECUTION_STRING" enter "$@"
fi
objects=()
if [[ -n $EXAMPLE_SERVED ]]; then
    objects=(
        AWS_ENDPOINT_URL="$FEEDLINE_TEST_S3" AWS_ACCESS_KEY_ID="$FEEDLINE_TEST_S3_KEY"
        AWS_SECRET_ACCESS_KEY="$FEEDLINE_TEST_S3_SECRET" AWS_REGION=us-east-1
    )
    env "${objects[@]}" "$FEEDLINE_TEST_PYTHON" -c "import boto3; boto3.client('s3').create_bucket(Bucket='bucket')"
fi
page=$1 program=$2 root=$1/root
ip link set lo up
mount --bind "$root" "$root"
touch "$page/example/tested/feedline"
mount --bind "$program" "$page/example/tested/feedline"
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
    EXAMPLE_SMALL="$EXAMPLE_SMALL" "${objects[@]}" \
    bash -c 'cd /tmp/job && exec bash -e /example/script'
