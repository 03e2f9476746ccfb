// Arrays, uniform values, messages, and the names that headers of Apple's define for themselves.
#pragma once

#define METAL_FUNC inline __attribute__((always_inline))
#define METAL_CONST constant constexpr
#define METAL_PURE
#define METAL_VALID_ARGS(...)
#define METAL_ASM(...)
#define METAL_CONVERGENT
#define METAL_ENABLE_IF(...)
#define assert(...) ((void)0)

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
template <class T> using uniform = T;
template <class T> constexpr T make_uniform(T x) { return x; }

struct os_log {
  template <class A, class B> constexpr os_log(A&&, B&&) {}
  template <class F, class... A> void log(F&&, A...) const {}
  template <class F, class... A> void log_debug(F&&, A...) const {}
  template <class F, class... A> void log_info(F&&, A...) const {}
  template <class F, class... A> void log_error(F&&, A...) const {}
  template <class F, class... A> void log_fault(F&&, A...) const {}
};
constexpr os_log os_log_default("", "");
} // namespace metal
