/* late_load PLUGIN [THREADS]: loads it after THREADS threads were started, which read the
   environment all the time, and runs it on this thread and on a new one. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char** environ;

static atomic_int stop;
static int (*plugin_run)(void);
static int failures;

static void* read_environment(void* unused) {
  (void)unused;
  while (!atomic_load(&stop)) getenv("NOT_THERE");
  return NULL;
}

static void* run(void* unused) {
  (void)unused;
  const int got = plugin_run(), wanted = 3 * 64 * 64 * 64;
  if (got != wanted) {
    printf("plugin_run gave %d and not %d\n", got, wanted);
    ++failures;
  }
  return NULL;
}

int main(int argc, char** argv) {
  const int threads = argc > 2 ? atoi(argv[2]) : 0;
  pthread_t readers[16], other;
  if (argc < 2 || threads > 16) return 2;
  for (int i = 0; i < threads; ++i) pthread_create(&readers[i], NULL, read_environment, NULL);
  char** const list = environ;
  int before = 0, after = 0;
  while (environ[before] != NULL) ++before;
  void* plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (plugin == NULL) {
    printf("dlopen: %s\n", dlerror());
    return 1;
  }
  plugin_run = (int (*)(void))dlsym(plugin, "plugin_run");
  run(NULL);
  pthread_create(&other, NULL, run, NULL);
  pthread_join(other, NULL);
  while (environ[after] != NULL) ++after;
  if (threads > 0 && (environ != list || after != before)) {
    printf("the environment was written beside other threads\n");
    ++failures;
  }
  atomic_store(&stop, 1);
  for (int i = 0; i < threads; ++i) pthread_join(readers[i], NULL);
  if (failures == 0) printf("loaded late and right\n");
  return failures;
}
