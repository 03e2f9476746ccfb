// Packed vectors: the alignment of one element and no padding.
#pragma once

namespace metal {
template <class T, int N> struct packed_vec : elv::components<T, N> {
  typedef elv::components<T, N> base;
  typedef make_index_sequence<N> indices;

  packed_vec() = default;
  template <class U, class = enable_if_t<elv::is_scalar_for<U, T>>> constexpr packed_vec(U scalar) : packed_vec(vec<T, N>((T)scalar)) {}
  constexpr packed_vec(vec<T, N> other) : packed_vec(other, indices{}) {}
  template <class A, class B, class... R, class = enable_if_t<((elv::width<A>::value + elv::width<B>::value) + ... + elv::width<R>::value) == N>>
  constexpr packed_vec(A a, B b, R... rest) : packed_vec(vec<T, N>(a, b, rest...)) {}

  constexpr operator vec<T, N>() const { return unpack(indices{}); }
  constexpr T operator[](int i) const { return this->get(i); }
  constexpr T& operator[](int i) { return __builtin_is_constant_evaluated() ? this->at(i) : (&this->x)[i]; }
  template <int... I> constexpr vec<T, sizeof...(I)> swizzle() const { return vec<T, sizeof...(I)>((*this)[I]...); }
  template <int... I> elv::lanes_of<T, I...> swizzled() { return elv::lanes_of<T, I...>{&this->x}; }

#define ELV_OPERATOR(op)                                                                          \
  friend constexpr vec<T, N> operator op(packed_vec a, packed_vec b) { return (vec<T, N>)a op(vec<T, N>) b; } \
  friend constexpr vec<T, N> operator op(packed_vec a, vec<T, N> b) { return (vec<T, N>)a op b; } \
  friend constexpr vec<T, N> operator op(vec<T, N> a, packed_vec b) { return a op(vec<T, N>) b; } \
  friend constexpr vec<T, N> operator op(packed_vec a, T b) { return (vec<T, N>)a op vec<T, N>(b); } \
  friend constexpr vec<T, N> operator op(T a, packed_vec b) { return vec<T, N>(a) op(vec<T, N>) b; } \
  constexpr packed_vec& operator op##=(vec<T, N> b) { return *this = packed_vec((vec<T, N>)*this op b); }
  ELV_OPERATOR(+)
  ELV_OPERATOR(-)
  ELV_OPERATOR(*)
  ELV_OPERATOR(/)
#undef ELV_OPERATOR
  friend constexpr vec<T, N> operator-(packed_vec a) { return -(vec<T, N>)a; }

private:
  template <size_t... I> constexpr packed_vec(vec<T, N> v, index_sequence<I...>) : base(v[I]...) {}
  template <size_t... I> constexpr vec<T, N> unpack(index_sequence<I...>) const { return vec<T, N>((*this)[I]...); }
};
} // namespace metal
