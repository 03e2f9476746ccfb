// The small rest: arrays, logging, uniform values.
#pragma once

namespace elv {
// Operands of conditions: see the lowering's `ternaries`.
template <class T> constexpr __forceinline__ auto at_least_float(T x) {
  if constexpr (is_narrow<T>)
    return (float)x;
  else
    return x;
}
template <class T, class I> constexpr __forceinline__ auto like(I x) {
  if constexpr (is_narrow<value_t<T>>)
    return (value_t<T>)x;
  else if constexpr (metal::is_pointer_v<value_t<T>>)
    return (value_t<T>)nullptr;
  else
    return x;
}

template <class T, size_t N, class V> __forceinline__ void fill(T (&items)[N], V value) {
  for (size_t i = 0; i < N; i++) items[i] = value;
}
} // namespace elv

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
  constexpr os_log(const char*, const char*) {}
  template <class... A> void log(const char*, A...) const {}
  template <class... A> void log_debug(const char*, A...) const {}
  template <class... A> void log_info(const char*, A...) const {}
  template <class... A> void log_error(const char*, A...) const {}
  template <class... A> void log_fault(const char*, A...) const {}
};
} // namespace metal
