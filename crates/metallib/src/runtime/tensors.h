// Metal 4's operations on tensors, as MetalPerformancePrimitives declares them: products of matrices and convolutions, whose operands lie in memory or are
// shared out among the threads (cooperative tensors). The place of an element among the threads is for an implementation to choose: kernels ask for it. Here
// it is that of Apple's matrix units, which some kernels rely on: fragments of 16 x 16 elements, eight to a lane.
// Sums are accumulated in float, or in int, in ascending order, from what the destination holds or from zero. An element beyond a tensor's extents is zero.

// A tensor in a thread's memory: what it is a view of, and where that begins, in elements.
struct elv_tensor {
  char* data;
  long origin;
  int extents[8];
  int strides[8];
};

// Types are numbered as in MPSDataType: bits of an element, and what they are.
#define ELV_FLOAT 0x10000000u
#define ELV_HALF (ELV_FLOAT | 16)
#define ELV_BFLOAT (0x80000000u | ELV_FLOAT | 16)
#define ELV_SIGNED 0x20000000u
#define ELV_BYTES(type) (((type) & 255) / 8)

AIR ushort elv_air_get_descriptor_size_tensor(ushort, ushort) { return sizeof(elv_tensor); }
#define INIT(space)                                                                                                                             \
  AIR void elv_air_init_strided_private_tensor_i32_##space(elv_tensor* t, ushort rank, char* data, const int* extents, const int* strides, char) { \
    t->data = data;                                                                                                                             \
    t->origin = 0;                                                                                                                              \
    for (ushort i = 0; i < rank && i < 8; i++) t->extents[i] = extents[i], t->strides[i] = strides[i];                                          \
  }
INIT(global) INIT(local)
AIR int elv_air_get_extent_private_tensor_i32(const elv_tensor* t, ushort, ushort dimension) { return t->extents[dimension & 7]; }
// Of what a slice asks for beyond its tensor there is nothing.
AIR void elv_air_slice_private_tensor_private_tensor_s_i32(elv_tensor* to, const elv_tensor* from, ushort rank, const int* origin, const int* extents) {
  to->data = from->data;
  to->origin = from->origin;
  for (ushort i = 0; i < rank && i < 8; i++) {
    int left = from->extents[i] - origin[i];
    to->extents[i] = extents[i] < left ? extents[i] : left;
    to->strides[i] = from->strides[i];
    to->origin += (long)origin[i] * from->strides[i];
  }
}

// Inlined everywhere: whether their accesses are checked is for their caller to say.
#define HELPER inline __attribute__((always_inline))
namespace elv_tensors {
using elv::is_active;
using elv::simd_width;
HELPER float element(const char* data, long at, uint type) {
  switch (type) {
    case ELV_FLOAT | 32: return ((const float*)data)[at];
    case ELV_HALF: return (float)((const half*)data)[at];
    case ELV_BFLOAT: return (float)((const bfloat*)data)[at];
    default: return 0;
  }
}
HELPER int whole(const char* data, long at, uint type) {
  switch (type) {
    case ELV_SIGNED | 8: return ((const char*)data)[at];
    case 8: return ((const uchar*)data)[at];
    case ELV_SIGNED | 16: return ((const short*)data)[at];
    case 16: return ((const ushort*)data)[at];
    default: return ((const int*)data)[at];
  }
}
HELPER void put(char* data, long at, uint type, float value) {
  switch (type) {
    case ELV_FLOAT | 32: ((float*)data)[at] = value; break;
    case ELV_HALF: ((half*)data)[at] = (half)value; break;
    case ELV_BFLOAT: ((bfloat*)data)[at] = (bfloat)value; break;
    default: break;
  }
}
HELPER bool is_float(uint type) { return type & ELV_FLOAT; }

// Where an element of a tensor of two dimensions is; negative beyond its extents.
HELPER long within(const elv_tensor* t, int column, int row) {
  if (column < 0 || column >= t->extents[0] || row < 0 || row >= t->extents[1]) return -1;
  return t->origin + (long)column * t->strides[0] + (long)row * t->strides[1];
}

// ---- products of matrices ----------------------------------------------------------------------------------------------------------------------
struct product {
  int m, n, k;
  char left_transposed, right_transposed, relaxed;
  int accumulates;
};
enum { LEFT, RIGHT, DESTINATION };

// An operand as it lies: rows and columns of a matrix, in fragments.
struct operand {
  int rows, columns, across, fragments, share;
};
HELPER operand operand_of(int which, product p, int threads) {
  operand o;
  bool transposed = which == LEFT ? p.left_transposed : which == RIGHT && p.right_transposed;
  int rows = which == RIGHT ? p.k : p.m, columns = which == LEFT ? p.k : p.n;
  o.rows = transposed ? columns : rows;
  o.columns = transposed ? rows : columns;
  o.across = (o.columns + 15) / 16;
  o.fragments = o.rows > 0 && o.columns > 0 ? (o.rows + 15) / 16 * o.across : 0;
  int simdgroups = threads / 32 > 0 ? threads / 32 : 1;
  o.share = (o.fragments + simdgroups - 1) / simdgroups;
  return o;
}
struct coordinate {
  int column, row;
  bool valid;
};
HELPER coordinate coordinate_of(operand o, int threads, uint index, uint at) {
  uint simdgroups = threads / 32 > 0 ? threads / 32 : 1, lane = index % 32;
  int fragment = (int)(index / 32 % simdgroups) * o.share + (int)(at / 8);
  coordinate c;
  c.valid = false;
  c.row = c.column = 0;
  if (at >= 8u * o.share || fragment >= o.fragments) return c;
  c.row = fragment / o.across * 16 + (int)((lane >> 2 & 4) | (lane >> 1 & 3)) + (int)(at >> 2 & 1) * 8;
  c.column = fragment % o.across * 16 + (int)((lane >> 2 & 2) | (lane & 1)) * 4 + (int)(at & 3);
  c.valid = c.row < o.rows && c.column < o.columns;
  return c;
}
HELPER uint type_of(int which, uint left, uint right, uint destination) { return which == LEFT ? left : which == RIGHT ? right : destination; }

// What a lane hands over for a product whose operands are shared out among the lanes of a simdgroup.
struct tensor_slot {
  product p;
  const char *left, *right;
  char* destination;
  uint left_type, right_type, destination_type;
};
// The element of a row and column, from the lane that has it.
ELV_PLAIN HELPER float shared_element(void** slots, uint active, int which, operand o, int row, int column) {
  int r = row % 16, c = column % 16;
  uint lane = (r & 4) << 2 | (c / 4 & 2) << 2 | (r & 3) << 1 | (c / 4 & 1);
  if (!is_active(active, lane)) return 0;
  tensor_slot* own = (tensor_slot*)slots[lane];
  long at = (row / 16 * o.across + column / 16) * 8 + (r >> 3) * 4 + (c & 3);
  return which == LEFT ? element(own->left, at, own->left_type) : element(own->right, at, own->right_type);
}
ELV_PLAIN inline void shared_product(void** slots, uint active) {
  for (uint lane = 0; lane < simd_width; lane++) {
    if (!is_active(active, lane)) continue;
    tensor_slot* own = (tensor_slot*)slots[lane];
    product p = own->p;
    operand left = operand_of(LEFT, p, 32), right = operand_of(RIGHT, p, 32), destination = operand_of(DESTINATION, p, 32);
    for (uint at = 0; at < 8u * destination.share; at++) {
      coordinate d = coordinate_of(destination, 32, lane, at);
      if (!d.valid) continue;
      float sum = p.accumulates ? element(own->destination, at, own->destination_type) : 0;
      for (int k = 0; k < p.k; k++) {
        float a = shared_element(slots, active, LEFT, left, p.left_transposed ? k : d.row, p.left_transposed ? d.row : k);
        float b = shared_element(slots, active, RIGHT, right, p.right_transposed ? d.column : k, p.right_transposed ? k : d.column);
        sum = __builtin_fmaf(a, b, sum);
      }
      put(own->destination, at, own->destination_type, sum);
    }
  }
}
} // namespace elv_tensors

// The descriptor by its members, as the functions of cooperative tensors take it.
#define PRODUCT_IS int which, int m, int n, int k, char left_transposed, char right_transposed, char relaxed, int accumulates
#define DESCRIPTION elv_tensors::product{m, n, k, left_transposed, right_transposed, relaxed, accumulates}
AIR ulong elv_air_matmul2d_op_cooperative_tensor_data_size(PRODUCT_IS, uint left, uint right, uint destination, int threads) {
  return 8ul * elv_tensors::operand_of(which, DESCRIPTION, threads).share * ELV_BYTES(elv_tensors::type_of(which, left, right, destination));
}
AIR void elv_air_matmul2d_op_cooperative_tensor_init(PRODUCT_IS, char*, uint, uint, uint, int) {}
AIR ushort elv_air_matmul2d_op_cooperative_tensor_num_elements(PRODUCT_IS, char*, uint, uint, int threads) {
  return 8 * elv_tensors::operand_of(which, DESCRIPTION, threads).share;
}
// All of them if `at` is -1.
AIR char* elv_air_matmul2d_op_cooperative_tensor_get_element_pointer(PRODUCT_IS, char* tensor, ushort at, uint left, uint right, uint destination) {
  return at == 65535 ? tensor : tensor + at * ELV_BYTES(elv_tensors::type_of(which, left, right, destination));
}
AIR bool elv_air_matmul2d_op_cooperative_tensor_is_valid_element(PRODUCT_IS, char*, ushort at, uint, uint, uint, int threads) {
  return elv_tensors::coordinate_of(elv_tensors::operand_of(which, DESCRIPTION, threads), threads, elv_thread(), at).valid;
}
AIR void elv_air_matmul2d_op_cooperative_tensor_get_coordinate(PRODUCT_IS, char*, ushort at, int* to, uint, int threads, uint, uint, uint) {
  elv_tensors::coordinate c = elv_tensors::coordinate_of(elv_tensors::operand_of(which, DESCRIPTION, threads), threads, elv_thread(), at);
  to[0] = c.column;
  to[1] = c.row;
}
AIR void elv_air_matmul2d_op_cooperative_tensor_load(PRODUCT_IS, char* to, const elv_tensor* from, uint left, uint right, uint destination, int threads) {
  elv_tensors::operand o = elv_tensors::operand_of(which, DESCRIPTION, threads);
  uint type = elv_tensors::type_of(which, left, right, destination);
  for (uint at = 0; at < 8u * o.share; at++) {
    elv_tensors::coordinate c = elv_tensors::coordinate_of(o, threads, elv_thread(), at);
    long source = c.valid ? elv_tensors::within(from, c.column, c.row) : -1;
    if (elv_tensors::is_float(type)) elv_tensors::put(to, at, type, source < 0 ? 0 : elv_tensors::element(from->data, source, type));
    else if (type == (ELV_SIGNED | 32)) ((int*)to)[at] = source < 0 ? 0 : ((const int*)from->data)[source];
    else to[at] = source < 0 ? 0 : from->data[source];
  }
}
AIR void elv_air_matmul2d_op_cooperative_tensor_store(PRODUCT_IS, const char* from, const elv_tensor* to, uint left, uint right, uint destination, int threads) {
  elv_tensors::operand o = elv_tensors::operand_of(which, DESCRIPTION, threads);
  uint type = elv_tensors::type_of(which, left, right, destination);
  for (uint at = 0; at < 8u * o.share; at++) {
    elv_tensors::coordinate c = elv_tensors::coordinate_of(o, threads, elv_thread(), at);
    long target = c.valid ? elv_tensors::within(to, c.column, c.row) : -1;
    if (target < 0) continue;
    if (elv_tensors::is_float(type)) elv_tensors::put(to->data, target, type, elv_tensors::element(from, at, type));
    else ((int*)to->data)[target] = ((const int*)from)[at];
  }
}
// Operands in memory: each thread computes what it has of the destination, which is shared out or lies in memory too.
AIR void elv_air_matmul2d_op_run(const elv_tensors::product* p, const elv_tensor* left, const elv_tensor* right, char* destination, int threads, uint left_type,
                                 uint right_type, uint destination_type, bool in_memory, HERE) {
  MEET("matmul2d");
  elv_tensors::operand o = elv_tensors::operand_of(elv_tensors::DESTINATION, *p, threads);
  int depth = p->k < 0 ? left->extents[p->left_transposed ? 1 : 0] : p->k;
  for (uint at = 0; at < 8u * o.share; at++) {
    elv_tensors::coordinate d = elv_tensors::coordinate_of(o, threads, elv_thread(), at);
    if (!d.valid) continue;
    char* to = in_memory ? ((elv_tensor*)destination)->data : destination;
    long target = in_memory ? elv_tensors::within((elv_tensor*)destination, d.column, d.row) : at;
    if (target < 0) continue;
    bool is_float = elv_tensors::is_float(destination_type);
    float sum = p->accumulates && is_float ? elv_tensors::element(to, target, destination_type) : 0;
    int total = p->accumulates && !is_float ? ((int*)to)[target] : 0;
    for (int k = 0; k < depth; k++) {
      long a = p->left_transposed ? elv_tensors::within(left, d.row, k) : elv_tensors::within(left, k, d.row);
      long b = p->right_transposed ? elv_tensors::within(right, k, d.column) : elv_tensors::within(right, d.column, k);
      if (a < 0 || b < 0) continue;
      if (is_float) sum = __builtin_fmaf(elv_tensors::element(left->data, a, left_type), elv_tensors::element(right->data, b, right_type), sum);
      else total += elv_tensors::whole(left->data, a, left_type) * elv_tensors::whole(right->data, b, right_type);
    }
    if (is_float) elv_tensors::put(to, target, destination_type, sum);
    else ((int*)to)[target] = total;
  }
}
AIR void elv_air_matmul2d_op_run_shared(const elv_tensors::product* p, const char* left, const char* right, char* destination, uint left_type, uint right_type,
                                        uint destination_type, HERE) {
  elv_tensors::tensor_slot own = {*p, left, right, destination, left_type, right_type, destination_type};
  elv_collective(&elv_tensors::shared_product, &own, "matmul2d", file, line);
}

// ---- convolutions: activations (channel, x, y, image), weights (channel made, channel, x, y) -----------------------------------------------------
namespace elv_tensors {
struct convolution {
  int made[4], given[4], window[2], activation_layout, weights_layout, strides[2], dilations[2], groups;
  char relaxed;
  int accumulates;
};
HELPER uint made(const convolution* c) { return c->made[0] * c->made[1] * c->made[2] * c->made[3]; }
} // namespace elv_tensors
AIR ulong elv_air_conv2d_cooperative_destination_data_size(const elv_tensors::convolution* c, uint, uint, uint destination, int threads) {
  return (elv_tensors::made(c) + threads - 1ul) / threads * ELV_BYTES(destination);
}
AIR void elv_air_conv2d_cooperative_destination_tensor_init(char*, const elv_tensors::convolution*, uint, uint, uint, int) {}
AIR void elv_air_conv2d_cooperative_destination_tensor_destory(char*, const elv_tensors::convolution*, int) {}
AIR ushort elv_air_conv2d_cooperative_destination_tensor_num_elements(const elv_tensors::convolution* c, char*, uint, uint, uint, int threads) {
  uint first = elv_thread() % threads, all = elv_tensors::made(c);
  return first < all ? (all - first + threads - 1) / threads : 0;
}
AIR char* elv_air_conv2d_cooperative_destination_tensor_elements(char* tensor, ushort at, uint type, int) {
  return at == 65535 ? tensor : tensor + at * ELV_BYTES(type);
}
AIR void elv_air_conv2d_cooperative_destination_tensor_get_coordinate(const elv_tensors::convolution* c, char*, ushort at, uint, int* to, uint, uint, uint, uint,
                                                                       int threads) {
  uint element = at * threads + elv_thread() % threads;
  for (int i = 0; i < 4; i++) {
    to[i] = element % c->made[i];
    element /= c->made[i];
  }
}
// `offsets` is the place of the first element's kernel, whose middle is at half its width, rounded up.
AIR void elv_air_convolution2d_op_run(const elv_tensors::convolution* c, const elv_tensor* given, const elv_tensor* weights, char* destination, int threads,
                                      const int* offsets, uint given_type, uint weights_type, uint destination_type, HERE) {
  MEET("convolution2d");
  uint all = elv_tensors::made(c);
  for (uint at = 0, element = elv_thread() % threads; element < all; at++, element += threads) {
    int to[4], rest = element;
    for (int i = 0; i < 4; i++) {
      to[i] = rest % c->made[i];
      rest /= c->made[i];
    }
    int channels = c->given[0] / c->groups, first = to[0] / (c->made[0] / c->groups) * channels;
    float sum = c->accumulates ? elv_tensors::element(destination, at, destination_type) : 0;
    for (int y = 0; y < c->window[1]; y++) {
      int row = offsets[1] + to[2] * c->strides[1] + y * c->dilations[1] - ((c->window[1] - 1) * c->dilations[1] + 1) / 2;
      if (row < 0 || row >= given->extents[2] || y >= weights->extents[3]) continue;
      for (int x = 0; x < c->window[0]; x++) {
        int column = offsets[0] + to[1] * c->strides[0] + x * c->dilations[0] - ((c->window[0] - 1) * c->dilations[0] + 1) / 2;
        if (column < 0 || column >= given->extents[1] || x >= weights->extents[2]) continue;
        for (int channel = 0; channel < channels; channel++) {
          if (first + channel >= given->extents[0] || to[3] >= given->extents[3] || channel >= weights->extents[1] || to[0] >= weights->extents[0]) continue;
          long a = given->origin + (long)(first + channel) * given->strides[0] + (long)column * given->strides[1] + (long)row * given->strides[2] +
                   (long)to[3] * given->strides[3];
          long b = weights->origin + (long)to[0] * weights->strides[0] + (long)channel * weights->strides[1] + (long)x * weights->strides[2] +
                   (long)y * weights->strides[3];
          sum = __builtin_fmaf(elv_tensors::element(given->data, a, given_type), elv_tensors::element(weights->data, b, weights_type), sum);
        }
      }
    }
    elv_tensors::put(destination, at, destination_type, sum);
  }
}
