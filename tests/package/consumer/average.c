/* The smallest program over horovod.h: the average of equal inputs is the input. */
#include <horovod.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  hvd_runtime* runtime = NULL;
  if (hvd_init(&runtime) != HVD_OK) {
    fprintf(stderr, "%s\n", hvd_last_error());
    return 1;
  }
  float in[3] = {1, 2, 3}, out[3] = {0, 0, 0};
  int64_t shape[1] = {3};
  hvd_op_description description = {.struct_size = sizeof description,
                                    .name = "average",
                                    .verb = HVD_ALLREDUCE,
                                    .dtype = HVD_FLOAT32,
                                    .reduce_op = HVD_AVERAGE,
                                    .dimensions = 1,
                                    .shape = shape,
                                    .prescale = 1,
                                    .postscale = 1};
  hvd_op* op = NULL;
  hvd_handle handle = 0;
  if (hvd_prepare(runtime, &description, &op) == HVD_OK) {
    hvd_start_arguments arguments = hvd_use_of(op, in, out);
    hvd_start(runtime, &arguments, 1, &handle);
  }
  if (handle == 0 || hvd_wait(runtime, handle, -1) != HVD_OK || memcmp(in, out, sizeof in) != 0) {
    fprintf(stderr, "allreduce: %s\n", hvd_last_error());
    return 1;
  }
  hvd_release(runtime, handle);
  hvd_shutdown(runtime);
  printf("horovod %s works\n", hvd_version());
  return 0;
}
