// Plays the CUDA driver, libcuda.so.1, as far as the program asks it before it loads the CUDA module. What it says
// stands in environment variables.
#include <stdlib.h>

static int number(const char* variable, int otherwise) {
  const char* value = getenv(variable);
  return value != NULL ? atoi(value) : otherwise;
}

int cuInit(unsigned flags) {
  (void)flags;
  return number("FAKE_DRIVER_INIT", 0);
}
int cuDriverGetVersion(int* version) {
  *version = number("FAKE_DRIVER_VERSION", 99000);
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = number("FAKE_DRIVER_COUNT", 1);
  return 0;
}
