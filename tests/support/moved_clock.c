/* Preloaded into a process: its wall clock is ahead by the nanoseconds that stand in the file MOVED_CLOCK.
 *
 * The monotonic clock stays. Waits until a wall clock time are for those who read it here, so they are put back; a
 * condition that waits by the monotonic clock is told by its time, which is that since the start of the machine. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>

#define SECOND 1000000000LL
#define SURELY_A_WALL_CLOCK (1000000000LL * SECOND) /* in 2001 */

static _Atomic int64_t still;
static _Atomic int64_t *ahead = &still;
static int (*real_gettime)(clockid_t, struct timespec *);
static int (*real_timedwait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
static int (*real_cnd_timedwait)(cnd_t *, mtx_t *, const struct timespec *);

__attribute__((constructor)) static void begin(void) {
  real_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  void *found = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2"); /* x86-64 has an older one, too */
  real_timedwait = (int (*)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *))(
      found ? found : dlsym(RTLD_NEXT, "pthread_cond_timedwait"));
  real_cnd_timedwait = (int (*)(cnd_t *, mtx_t *, const struct timespec *))dlsym(RTLD_NEXT, "cnd_timedwait");
  const char *path = getenv("MOVED_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof still, PROT_READ, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) abort();
  ahead = mapped;
}

static void put(int64_t ns, struct timespec *time) {
  time->tv_sec = ns / SECOND;
  time->tv_nsec = ns % SECOND;
}

static int64_t taken(const struct timespec *time) { return time->tv_sec * SECOND + time->tv_nsec; }

int clock_gettime(clockid_t clock, struct timespec *time) {
  if (!real_gettime) begin();
  int result = real_gettime(clock, time);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) put(taken(time) + *ahead, time);
  return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *stored) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (stored) *stored = now.tv_sec;
  return now.tv_sec;
}

static struct timespec put_back(const struct timespec *until) {
  struct timespec real = *until;
  if (taken(until) > SURELY_A_WALL_CLOCK) put(taken(until) - *ahead, &real);
  return real;
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
  struct timespec real = put_back(until);
  return real_timedwait(condition, mutex, &real);
}

/* librdkafka's: the C library's own way from here to the one above does not come by it. */
int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex, const struct timespec *restrict until) {
  struct timespec real = put_back(until);
  return real_cnd_timedwait(condition, mutex, &real);
}
