// The kernels of benchmarks.emu. reference.c has the same algorithms for a processor, under the
// same names. `n` is the number of elements, or the edge of a square.

extern "C" __global__ void empty() {}

extern "C" __global__ void saxpy(float a, const float *x, float *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}

extern "C" __global__ void saxpy_stride(float a, const float *x, float *y, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
    y[i] = a * x[i] + y[i];
}

// One sum for each block of 256 elements, through shared memory.
extern "C" __global__ void reduce_shared(const float *x, float *sums, int n) {
  __shared__ float part[256];
  int i = blockIdx.x * 256 + threadIdx.x;
  part[threadIdx.x] = i < n ? x[i] : 0.0f;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = part[0];
}

// The same by shuffles within each warp.
extern "C" __global__ void reduce_shuffle(const float *x, float *sums, int n) {
  __shared__ float part[8];
  int i = blockIdx.x * 256 + threadIdx.x;
  float v = i < n ? x[i] : 0.0f;
  for (int half = 16; half > 0; half /= 2) v += __shfl_down_sync(0xffffffffu, v, half);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  if (threadIdx.x < 32) {
    v = threadIdx.x < 8 ? part[threadIdx.x] : 0.0f;
    for (int half = 4; half > 0; half /= 2) v += __shfl_down_sync(0xffffffffu, v, half);
    if (threadIdx.x == 0) sums[blockIdx.x] = v;
  }
}

// Prefix sums within blocks of 256 elements (Hillis and Steele).
extern "C" __global__ void scan(const int *x, int *y, int n) {
  __shared__ int part[2][256];
  int i = blockIdx.x * 256 + threadIdx.x, t = threadIdx.x, from = 0;
  part[0][t] = i < n ? x[i] : 0;
  __syncthreads();
  for (int distance = 1; distance < 256; distance *= 2) {
    part[1 - from][t] = part[from][t] + (t >= distance ? part[from][t - distance] : 0);
    from = 1 - from;
    __syncthreads();
  }
  if (i < n) y[i] = part[from][t];
}

extern "C" __global__ void product_tiled(const float *a, const float *b, float *c, int n) {
  __shared__ float left[16][16], right[16][16];
  int x = threadIdx.x, y = threadIdx.y;
  int row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
  float sum = 0.0f;
  for (int tile = 0; tile < n; tile += 16) {
    left[y][x] = a[row * n + tile + x];
    right[y][x] = b[(tile + y) * n + column];
    __syncthreads();
    for (int k = 0; k < 16; k++) sum += left[y][k] * right[k][x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}

// 64 x 64 results for each block of 16 x 16 threads, 4 x 4 in the registers of each thread.
extern "C" __global__ void product_registers(const float *a, const float *b, float *c, int n) {
  __shared__ float left[64][16], right[16][64];
  int x = threadIdx.x, y = threadIdx.y, flat = y * 16 + x;
  int row = blockIdx.y * 64, column = blockIdx.x * 64;
  float sum[4][4] = {};
  for (int tile = 0; tile < n; tile += 16) {
    for (int i = flat; i < 64 * 16; i += 256) {
      left[i / 16][i % 16] = a[(row + i / 16) * n + tile + i % 16];
      right[i / 64][i % 64] = b[(tile + i / 64) * n + column + i % 64];
    }
    __syncthreads();
    for (int k = 0; k < 16; k++)
      for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) sum[i][j] += left[y * 4 + i][k] * right[k][x * 4 + j];
    __syncthreads();
  }
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) c[(row + y * 4 + i) * n + column + x * 4 + j] = sum[i][j];
}

// The acceleration of each body by all bodies; w is the mass.
extern "C" __global__ void bodies(const float4 *body, float4 *force, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float4 me = body[i];
  float fx = 0.0f, fy = 0.0f, fz = 0.0f;
  for (int j = 0; j < n; j++) {
    float4 other = body[j];
    float dx = other.x - me.x, dy = other.y - me.y, dz = other.z - me.z;
    float square = dx * dx + dy * dy + dz * dz + 0.01f;
    float scale = other.w / (square * sqrtf(square));
    fx += dx * scale;
    fy += dy * scale;
    fz += dz * scale;
  }
  force[i] = make_float4(fx, fy, fz, 0.0f);
}

extern "C" __global__ void histogram(const unsigned *x, unsigned *bins, int n) {
  __shared__ unsigned part[256];
  part[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += 256 * gridDim.x)
    atomicAdd(&part[x[i] & 255], 1u);
  __syncthreads();
  atomicAdd(&bins[threadIdx.x], part[threadIdx.x]);
}

extern "C" __global__ void mandelbrot(int *steps, int n) {
  int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
  if (column >= n || row >= n) return;
  float cx = -2.0f + 3.0f * column / n, cy = -1.5f + 3.0f * row / n, x = 0.0f, y = 0.0f;
  int step = 0;
  while (step < 256 && x * x + y * y < 4.0f) {
    float next = x * x - y * y + cx;
    y = 2.0f * x * y + cy;
    x = next;
    step++;
  }
  steps[row * n + column] = step;
}

extern "C" __global__ void black_scholes(const float *price, const float *strike,
                                         const float *years, float *call, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float rate = 0.02f, volatility = 0.3f;
  float root = sqrtf(years[i]);
  float d1 = (logf(price[i] / strike[i]) + (rate + 0.5f * volatility * volatility) * years[i]) /
             (volatility * root);
  float d2 = d1 - volatility * root;
  float n1 = 0.5f * erfcf(-d1 * 0.70710678f), n2 = 0.5f * erfcf(-d2 * 0.70710678f);
  call[i] = price[i] * n1 - strike[i] * expf(-rate * years[i]) * n2;
}
