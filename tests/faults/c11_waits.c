/* libfaketime knows the timed wait of POSIX, not that of C11 which librdkafka uses: glibc's own
 * differ only in name, so the one is sent through the other. */
#include <errno.h>
#include <pthread.h>
#include <threads.h>

int cnd_timedwait(cnd_t *restrict cond, mtx_t *restrict mutex, const struct timespec *restrict until)
{
    switch (pthread_cond_timedwait((pthread_cond_t *)cond, (pthread_mutex_t *)mutex, until)) {
    case 0:
        return thrd_success;
    case ETIMEDOUT:
        return thrd_timedout;
    default:
        return thrd_error;
    }
}
