/* Restricts its own system calls to what it needs, and ends for any other one: by "prctl", by a "call", in the "strict"
   mode, or not at all but asks ("probe"). "exec PROGRAM ARGUMENTS" restricts itself to all calls but one, and runs a
   program. */
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NUMBER BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define KILL BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

static struct sock_filter needed[] = {
    NUMBER, ALLOW(SYS_read), ALLOW(SYS_write), ALLOW(SYS_openat), ALLOW(SYS_close), ALLOW(SYS_exit_group),
    ALLOW(SYS_clone), ALLOW(SYS_wait4), ALLOW(SYS_rt_sigprocmask), ALLOW(SYS_set_robust_list), ALLOW(SYS_brk),
    ALLOW(SYS_mmap), ALLOW(SYS_newfstatat), ALLOW(SYS_fstat), ALLOW(SYS_getrandom), KILL,
};
/* The library asks for numbers of files with it. */
static struct sock_filter all_but_statx[] = {
    NUMBER, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_statx, 1, 0), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW), KILL,
};

static void use_files(void) {
    char byte;
    int fd = open("/etc/hostname", O_RDONLY);
    read(fd, &byte, 1);
    close(fd);
}

int main(int count, char **arguments) {
    const char *kind = arguments[1];
    int status;
    struct sock_fprog filter = {sizeof needed / sizeof *needed, needed};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (!strcmp(kind, "strict")) {
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) return 9;
        write(1, "strict\n", 7);
        syscall(SYS_exit, 0);
    } else if (!strcmp(kind, "exec")) {
        struct sock_fprog most = {sizeof all_but_statx / sizeof *all_but_statx, all_but_statx};
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &most)) return 9;
        execv(arguments[2], arguments + 2);
    } else if (!strcmp(kind, "call")) {
        if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter)) return 9;
    } else if (!strcmp(kind, "probe")) {
        if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL) != -1) return 9;
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) != -1) return 9;
    } else if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) {
        return 9;
    }
    use_files();
    pid_t child = fork();
    if (child == 0) {
        use_files();
        _exit(3);
    }
    waitpid(child, &status, 0);
    printf("child %d\n", WEXITSTATUS(status));
    fflush(stdout);
    _exit(4);
}
