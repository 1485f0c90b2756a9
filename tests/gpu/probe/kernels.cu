// What the probe launches. The same source becomes PTX by nvcc and, for sm_70, by clang.
#if defined(__clang__)
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#endif

struct Piece {
  const float* from;
  float* to;
  long long count;
};
// With the count they are 4 KB and 32 KB of parameters, as a list of moves would have.
struct Small {
  long long pieces;
  Piece list[169];
};
struct Large {
  long long pieces;
  Piece list[1364];
};
static_assert(sizeof(Small) <= 4096 && sizeof(Large) <= 32764, "the parameters of a kernel");

template <typename Table>
__device__ void move_all(const Table& table) {
  for (long long i = 0; i < table.pieces; ++i)
    if (table.list[i].count > 0) table.list[i].to[0] = table.list[i].from[0];
}

extern "C" __global__ void nothing() {}
extern "C" __global__ void move_small(Small table) {
  move_all(table);
}
#if !defined(PROBE_SMALL_PARAMETERS)
extern "C" __global__ void move_large(Large table) {
  move_all(table);
}
#endif
// Ends when the host writes the word.
extern "C" __global__ void hang(volatile unsigned* word) {
  while (*word == 0) {
  }
}
// The last thing of a batch: a word in mapped memory, as our own last kernel would write it.
extern "C" __global__ void tell(volatile unsigned* word, unsigned value) {
  *word = value;
}
