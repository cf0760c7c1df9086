/* Runs a program whose processes cannot take one another's descriptors: a filter refuses
 * pidfd_getfd, as a container's may, or ends who calls it, as systemd's SystemCallFilter= does;
 * or it allows it. The ends of children are ignored.
 *
 *     filtered refuses|ends|allows PROGRAM [ARGUMENT...]
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int count, char **arguments)
{
    const char *how = count > 1 ? arguments[1] : "";
    unsigned answer = !strcmp(how, "refuses") ? SECCOMP_RET_ERRNO | EPERM
                    : !strcmp(how, "ends")    ? SECCOMP_RET_KILL_PROCESS
                                              : SECCOMP_RET_ALLOW;
    struct sock_filter refusal[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_getfd, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, answer),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof refusal / sizeof *refusal, refusal};
    if (count < 3 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        perror("filtered");
        return 2;
    }
    signal(SIGCHLD, SIG_IGN);
    execv(arguments[2], arguments + 2);
    perror(arguments[2]);
    return 2;
}
