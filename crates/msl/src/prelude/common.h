// Functions of arguments of any arithmetic type: minimum, maximum, selection, interpolation.
#pragma once

namespace elv {
// Applies a function of scalars to each element of vectors.
template <class T, int N, class F> constexpr auto map(metal::vec<T, N> a, F f) {
  metal::vec<decltype(f(a[0])), N> r;
  for (int i = 0; i < N; i++) r[i] = f(a[i]);
  return r;
}
template <class T, class U, int N, class F> constexpr auto map(metal::vec<T, N> a, metal::vec<U, N> b, F f) {
  metal::vec<decltype(f(a[0], b[0])), N> r;
  for (int i = 0; i < N; i++) r[i] = f(a[i], b[i]);
  return r;
}
template <class T, class U, class V, int N, class F> constexpr auto map(metal::vec<T, N> a, metal::vec<U, N> b, metal::vec<V, N> c, F f) {
  metal::vec<decltype(f(a[0], b[0], c[0])), N> r;
  for (int i = 0; i < N; i++) r[i] = f(a[i], b[i], c[i]);
  return r;
}
template <class A, class B> constexpr bool are_mixed_scalars = metal::is_arithmetic_v<A> && metal::is_arithmetic_v<B> && !metal::is_same_v<A, B>;
} // namespace elv

// A number that one instruction chooses, and so flushes where subnormals are.
#ifdef ELV_FLUSH_SUBNORMALS
#define ELV_COMPUTED(T, x) ((x) * (T)1)
#else
#define ELV_COMPUTED(T, x) (x)
#endif

namespace metal {
#define ELV_CHOOSE(name, op)                                                                                                        \
  template <class T, enable_if_t<is_integral_v<T>, int> = 0> constexpr T name(T a, T b) { return b op a ? b : a; }                 \
  template <class A, class B, enable_if_t<elv::are_mixed_scalars<A, B>, int> = 0> constexpr auto name(A a, B b) {                    \
    typedef decltype(a + b) C;                                                                                                       \
    return name((C)a, (C)b);                                                                                               \
  }                                                                                                                                  \
  template <class T, int N> constexpr vec<T, N> name(vec<T, N> a, vec<T, N> b) {                                                     \
    return elv::map(a, b, [](T p, T q) { return (T)name(p, q); });                                                                   \
  }                                                                                                                                  \
  template <class T, int N, class S, class = enable_if_t<elv::is_scalar_for<S, T>>> constexpr vec<T, N> name(vec<T, N> a, S b) {     \
    return name(a, vec<T, N>(b));                                                                                                    \
  }                                                                                                                                  \
  template <class T, int N, class S, class = enable_if_t<elv::is_scalar_for<S, T>>> constexpr vec<T, N> name(S a, vec<T, N> b) {     \
    return name(vec<T, N>(a), b);                                                                                                    \
  }
// Where one argument is NaN, min and max of floating-point numbers give the other.
#define ELV_CHOOSE_NUMBER(T)                                                                       \
  constexpr T min(T a, T b) { return ELV_COMPUTED(T, b < a || a != a ? b : a); }                   \
  constexpr T max(T a, T b) { return ELV_COMPUTED(T, b > a || a != a ? b : a); }
ELV_CHOOSE_NUMBER(float)
ELV_CHOOSE_NUMBER(half)
ELV_CHOOSE(min, <)
ELV_CHOOSE(max, >)
#undef ELV_CHOOSE_NUMBER
#undef ELV_CHOOSE

template <class A, class B, class C> constexpr auto clamp(A x, B low, C high) { return min(max(x, low), high); }
template <class T> constexpr T min3(T a, T b, T c) { return min(a, min(b, c)); }
template <class T> constexpr T max3(T a, T b, T c) { return max(a, max(b, c)); }
template <class T> constexpr T median3(T a, T b, T c) { return max(min(a, b), min(max(a, b), c)); }
template <class T, class U> constexpr T mix(T a, T b, U t) { return a + (b - a) * (T)t; }

template <class T, class U, enable_if_t<(elv::width<T>::value == 1), int> = 0> constexpr T select(T a, U b, bool c) { return c ? (T)b : a; }
template <class T, int N> constexpr vec<T, N> select(vec<T, N> a, vec<T, N> b, vec<bool, N> c) {
  return elv::map(a, b, c, [](T p, T q, bool second) { return second ? q : p; });
}
template <class T, int N> constexpr vec<T, N> select(vec<T, N> a, vec<T, N> b, bool c) { return c ? b : a; }

template <int N> constexpr bool any(vec<bool, N> v) {
  bool r = false;
  for (int i = 0; i < N; i++) r |= v[i];
  return r;
}
template <int N> constexpr bool all(vec<bool, N> v) {
  bool r = true;
  for (int i = 0; i < N; i++) r &= v[i];
  return r;
}
constexpr bool any(bool b) { return b; }
constexpr bool all(bool b) { return b; }
} // namespace metal
