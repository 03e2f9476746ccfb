// Vectors: component access, arithmetic, comparison. Lowering turns `v.yx` into `v.template swizzle<1, 0>()`, and into `swizzled` where it is assigned.
#pragma once

namespace metal {
template <class T, int N> struct vec;
template <class T, int N> struct packed_vec;
} // namespace metal

namespace elv {
// How many scalars a value has: constructors take any mixture that adds up.
template <class T> struct width { static constexpr int value = 1; };
template <class T, int N> struct width<metal::vec<T, N>> { static constexpr int value = N; };
template <class T, int N> struct width<metal::packed_vec<T, N>> { static constexpr int value = N; };

template <class T> struct element { typedef T type; };
template <class T, int N> struct element<metal::vec<T, N>> { typedef T type; };
template <class T, int N> struct element<metal::packed_vec<T, N>> { typedef T type; };

template <class U, class T> constexpr bool is_scalar_for = __is_convertible_to(U, T) && width<U>::value == 1;

// Every component has two names. Reading by index selects, so that a vector in registers stays there.
template <class T, int N> struct components;
template <class T> struct components<T, 2> {
  union { T x, r; };
  union { T y, g; };
  components() = default;
  constexpr components(T a, T b) : x(a), y(b) {}
  constexpr T get(int i) const { return i == 0 ? x : y; }
  constexpr T& at(int i) { return i == 0 ? x : y; }
};
template <class T> struct components<T, 3> {
  union { T x, r; };
  union { T y, g; };
  union { T z, b; };
  components() = default;
  constexpr components(T a, T b_, T c) : x(a), y(b_), z(c) {}
  constexpr T get(int i) const { return i == 0 ? x : i == 1 ? y : z; }
  constexpr T& at(int i) { return i == 0 ? x : i == 1 ? y : z; }
};
template <class T> struct components<T, 4> {
  union { T x, r; };
  union { T y, g; };
  union { T z, b; };
  union { T w, a; };
  components() = default;
  constexpr components(T a_, T b_, T c, T d) : x(a_), y(b_), z(c), w(d) {}
  constexpr T get(int i) const { return i == 0 ? x : i == 1 ? y : i == 2 ? z : w; }
  constexpr T& at(int i) { return i == 0 ? x : i == 1 ? y : i == 2 ? z : w; }
};

// The scalars of a list of scalars and vectors, by index.
template <class T, class A> constexpr T pick(int i, A a) {
  if constexpr (width<A>::value == 1)
    return (T)a;
  else
    return (T)a[i];
}
template <class T, class A, class... R> constexpr T pick(int i, A a, R... rest) {
  if constexpr (sizeof...(R) == 0)
    return pick<T>(i, a);
  else
    return i < width<A>::value ? pick<T>(i, a) : pick<T>(i - width<A>::value, rest...);
}

// Says that what follows stood in braces, `float4 v = {x, y}`: missing scalars are zero.
struct in_braces {};
template <> struct width<in_braces> { static constexpr int value = 1000; };

// Some lanes of a vector, to be assigned.
template <class T, int... I> struct lanes_of {
  typedef metal::vec<T, sizeof...(I)> V;
  T* base;
  V get() const { return V(base[I]...); }
  operator V() const { return get(); }
  V operator=(V v) const {
    int k = 0;
    ((base[I] = v[k++]), ...);
    return v;
  }
  V operator+=(V v) const { return *this = get() + v; }
  V operator-=(V v) const { return *this = get() - v; }
  V operator*=(V v) const { return *this = get() * v; }
  V operator/=(V v) const { return *this = get() / v; }
  V operator%=(V v) const { return *this = get() % v; }
  V operator&=(V v) const { return *this = get() & v; }
  V operator|=(V v) const { return *this = get() | v; }
  V operator^=(V v) const { return *this = get() ^ v; }
  V operator<<=(V v) const { return *this = get() << v; }
  V operator>>=(V v) const { return *this = get() >> v; }
};
} // namespace elv

namespace metal {
template <class T, int N> struct alignas(sizeof(T) * (N == 3 ? 4 : N)) vec : elv::components<T, N> {
  typedef elv::components<T, N> base;
  typedef make_index_sequence<N> indices;

  vec() = default;
  explicit constexpr vec(base components) : base(components) {}
  template <class U, class = enable_if_t<elv::is_scalar_for<U, T>>> constexpr vec(U scalar) : base(splat((T)scalar, indices{})) {}
  template <class U, class = enable_if_t<!is_same_v<U, T>>> explicit constexpr vec(vec<U, N> other) : base(list(indices{}, other)) {}
  template <class U> explicit constexpr vec(packed_vec<U, N> other) : base(list(indices{}, other)) {}
  template <class A, class B, class... R, class = enable_if_t<((elv::width<A>::value + elv::width<B>::value) + ... + elv::width<R>::value) == N>>
  constexpr vec(A a, B b, R... rest) : base(list(indices{}, a, b, rest...)) {}
  template <class... A> constexpr vec(elv::in_braces, A... a) : base(list(indices{}, a..., (T)0, (T)0, (T)0, (T)0)) {}

  constexpr T operator[](int i) const { return this->get(i); }
  constexpr T& operator[](int i) { return __builtin_is_constant_evaluated() ? this->at(i) : (&this->x)[i]; }
  template <int... I> constexpr vec<T, sizeof...(I)> swizzle() const { return vec<T, sizeof...(I)>((*this)[I]...); }
  template <int... I> elv::lanes_of<T, I...> swizzled() { return elv::lanes_of<T, I...>{&this->x}; }

#define ELV_OPERATOR(op)                                                                                                 \
  friend constexpr vec operator op(vec p, vec q) {                                                                       \
    if constexpr (N == 2)                                                                                                \
      return vec(base((T)(p.x op q.x), (T)(p.y op q.y)));                                                                \
    else if constexpr (N == 3)                                                                                           \
      return vec(base((T)(p.x op q.x), (T)(p.y op q.y), (T)(p.z op q.z)));                                               \
    else                                                                                                                 \
      return vec(base((T)(p.x op q.x), (T)(p.y op q.y), (T)(p.z op q.z), (T)(p.w op q.w)));                              \
  }                                                                                                                      \
  constexpr vec& operator op##=(vec b) { return *this = *this op b; }
  ELV_OPERATOR(+)
  ELV_OPERATOR(-)
  ELV_OPERATOR(*)
  ELV_OPERATOR(/)
  ELV_OPERATOR(%)
  ELV_OPERATOR(&)
  ELV_OPERATOR(|)
  ELV_OPERATOR(^)
  ELV_OPERATOR(<<)
  ELV_OPERATOR(>>)
#undef ELV_OPERATOR
#define ELV_OPERATOR(op)                                                                                                 \
  friend constexpr vec<bool, N> operator op(vec p, vec q) {                                                              \
    typedef elv::components<bool, N> flags;                                                                              \
    if constexpr (N == 2)                                                                                                \
      return vec<bool, N>(flags(p.x op q.x, p.y op q.y));                                                                \
    else if constexpr (N == 3)                                                                                           \
      return vec<bool, N>(flags(p.x op q.x, p.y op q.y, p.z op q.z));                                                    \
    else                                                                                                                 \
      return vec<bool, N>(flags(p.x op q.x, p.y op q.y, p.z op q.z, p.w op q.w));                                        \
  }
  ELV_OPERATOR(==)
  ELV_OPERATOR(!=)
  ELV_OPERATOR(<)
  ELV_OPERATOR(>)
  ELV_OPERATOR(<=)
  ELV_OPERATOR(>=)
  ELV_OPERATOR(&&)
  ELV_OPERATOR(||)
#undef ELV_OPERATOR
#define ELV_OPERATOR(op, R)                                                                                              \
  friend constexpr vec<R, N> operator op(vec p) {                                                                        \
    typedef elv::components<R, N> results;                                                                               \
    if constexpr (N == 2)                                                                                                \
      return vec<R, N>(results((R)(op p.x), (R)(op p.y)));                                                               \
    else if constexpr (N == 3)                                                                                           \
      return vec<R, N>(results((R)(op p.x), (R)(op p.y), (R)(op p.z)));                                                  \
    else                                                                                                                 \
      return vec<R, N>(results((R)(op p.x), (R)(op p.y), (R)(op p.z), (R)(op p.w)));                                     \
  }
  ELV_OPERATOR(-, T)
  ELV_OPERATOR(~, T)
  ELV_OPERATOR(!, bool)
#undef ELV_OPERATOR
  friend constexpr vec operator+(vec p) { return p; }
  constexpr vec& operator++() { return *this += vec((T)1); }
  constexpr vec& operator--() { return *this -= vec((T)1); }

private:
  template <size_t... I> static constexpr base splat(T scalar, index_sequence<I...>) { return base(((void)I, scalar)...); }
  template <size_t... I, class... A> static constexpr base list(index_sequence<I...>, A... a) { return base(elv::pick<T>((int)I, a...)...); }
};

template <class T> struct is_vector : bool_constant<(elv::width<elv::value_t<T>>::value > 1)> {};
template <class T> constexpr bool is_vector_v = is_vector<T>::value;
template <class T> struct vec_elements : integral_constant<int, elv::width<elv::value_t<T>>::value> {};
template <class T> constexpr int vec_elements_v = vec_elements<T>::value;
template <class T> struct vec_element_type : elv::element<elv::value_t<T>> {};
template <class T, int N> struct make_vector { typedef vec<T, N> type; };
template <class T, int N> using make_vector_t = vec<T, N>;
template <class T, int N> struct make_unsigned<vec<T, N>> { typedef vec<make_unsigned_t<T>, N> type; };
template <class T, int N> struct make_signed<vec<T, N>> { typedef vec<make_signed_t<T>, N> type; };
} // namespace metal
