// The small rest: arrays, logging, uniform values, and conversions that clang's OpenCL mode lacks.
#pragma once

namespace metal {
template <class T, size_t N> struct array {
  T items[N];
  typedef T value_type;
  constexpr T& operator[](size_t i) { return items[i]; }
  constexpr const T& operator[](size_t i) const { return items[i]; }
  constexpr size_t size() const { return N; }
  constexpr bool empty() const { return N == 0; }
  constexpr T* data() { return items; }
  constexpr const T* data() const { return items; }
  constexpr T* begin() { return items; }
  constexpr T* end() { return items + N; }
  constexpr const T* begin() const { return items; }
  constexpr const T* end() const { return items + N; }
};
template <class T, class... U> array(T, U...) -> array<T, 1 + sizeof...(U)>;
template <class T> using uniform = T;
template <class T> constexpr T make_uniform(T x) { return x; }

// Messages go nowhere.
struct os_log {
  constexpr os_log(elv_text, elv_text) {}
  template <class... A> void log(elv_text, A...) const {}
  template <class... A> void log_debug(elv_text, A...) const {}
  template <class... A> void log_info(elv_text, A...) const {}
  template <class... A> void log_error(elv_text, A...) const {}
  template <class... A> void log_fault(elv_text, A...) const {}
};
} // namespace metal

namespace elv {
template <class T, class U> constexpr bool are_unrelated_halves =
    metal::is_same_v<T, half> && metal::is_same_v<U, bfloat> || metal::is_same_v<T, bfloat> && metal::is_same_v<U, half>;
} // namespace elv

// clang knows no conversion between half and bfloat: it goes through float.
template <class T, class U> constexpr ELV_INLINE T elv_static_cast(U&& value) {
  if constexpr (elv::are_unrelated_halves<T, elv::value_t<U>>)
    return (T)(float)value;
  else
    return static_cast<T>(value);
}
#define static_cast elv_static_cast

// An operand of `c ? a : b` as a value: clang rejects operands in different address spaces.
template <class T> constexpr ELV_INLINE elv::value_t<T> elv_value(T&& x) { return x; }
template <class T, size_t N> constexpr ELV_INLINE T* elv_value(T (&x)[N]) { return x; }

// The operand of `p += n`: clang does not convert a constant of class type there when p is a pointer.
template <class T, class V = decltype(elv::value_t<T>::value), class = typename elv::value_t<T>::value_type>
constexpr ELV_INLINE V elv_amount(T&& x, int) {
  return x;
}
template <class T> constexpr ELV_INLINE T&& elv_amount(T&& x, long) { return static_cast<T&&>(x); }
#define ELV_AMOUNT(x) elv_amount(x, 0)
