// Entry points: from the runtime's tables to a kernel's parameters, whose types come from the kernel itself.
#pragma once

namespace elv {
template <int I> struct buffer {};
template <int I> struct threadgroup_memory {};
template <int I> struct position {};
template <class... S> struct sources {};

template <class T> struct from_row {
  ELV_PLAIN ELV_INLINE static T get(const uint* row) { return (T)row[0]; }
};
template <class T, int N> struct from_row<metal::vec<T, N>> {
  ELV_PLAIN ELV_INLINE static metal::vec<T, N> get(const uint* row) {
    metal::vec<T, N> v;
    for (int i = 0; i < N; i++) v.lanes[i] = (T)row[i];
    return v;
  }
};

// The argument for a parameter of type P from its source.
template <class P, class S> struct argument;
template <class P, int I> struct argument<P, position<I>> {
  ELV_PLAIN ELV_INLINE static P get(const ulong*, const ulong*, const elv_positions* p) { return from_row<metal::remove_cv_t<P>>::get(p->values[I]); }
};
template <class P, int I> struct argument<P*, buffer<I>> {
  ELV_PLAIN ELV_INLINE static P* get(const ulong* b, const ulong*, const elv_positions*) { return (P*)b[I]; }
};
template <class P, int I> struct argument<P&, buffer<I>> {
  ELV_PLAIN ELV_INLINE static P& get(const ulong* b, const ulong*, const elv_positions*) { return *(P*)b[I]; }
};
template <class P, int I> struct argument<P*, threadgroup_memory<I>> {
  ELV_PLAIN ELV_INLINE static P* get(const ulong*, const ulong* t, const elv_positions*) { return (P*)t[I]; }
};
template <class P, int I> struct argument<P&, threadgroup_memory<I>> {
  ELV_PLAIN ELV_INLINE static P& get(const ulong*, const ulong* t, const elv_positions*) { return *(P*)t[I]; }
};

template <class... S, class... P>
ELV_PLAIN ELV_INLINE void enter(sources<S...>, void (*f)(P...), const ulong* buffers, const ulong* threadgroups, const elv_positions* positions) {
  f(argument<P, S>::get(buffers, threadgroups, positions)...);
}
} // namespace elv

// ELV_ENTRY(symbol, (address of the kernel), sources of its parameters...)
// (The kernel's name is looked up in the scope of the parameters, so theirs must be unique.)
#define ELV_ENTRY(symbol, address, ...)                                                                                                    \
  extern "C" ELV_PLAIN void symbol(const ulong* elv_buffers, const ulong* elv_threadgroups, const elv_positions* elv_now) {                \
    elv::enter(elv::sources<__VA_ARGS__>{}, address, elv_buffers, elv_threadgroups, elv_now);                                              \
  }
