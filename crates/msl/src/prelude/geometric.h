// <metal_geometric>
#pragma once

namespace metal {
template <class T, int N> constexpr T dot(vec<T, N> a, vec<T, N> b) {
  T sum = a[0] * b[0];
  for (int i = 1; i < N; i++) sum += a[i] * b[i];
  return sum;
}
template <class T> constexpr vec<T, 3> cross(vec<T, 3> a, vec<T, 3> b) {
  return vec<T, 3>(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x);
}
template <class T, int N> inline T length_squared(vec<T, N> a) { return dot(a, a); }
template <class T, int N> inline T length(vec<T, N> a) { return sqrt(dot(a, a)); }
template <class T, int N> inline T norm2(vec<T, N> a) { return sqrt(dot(a, a)); }
template <class T, int N> inline T distance(vec<T, N> a, vec<T, N> b) { return length(a - b); }
template <class T, int N> inline T distance_squared(vec<T, N> a, vec<T, N> b) { return length_squared(a - b); }
template <class T, int N> inline vec<T, N> normalize(vec<T, N> a) { return a * rsqrt(dot(a, a)); }
template <class T, int N> inline vec<T, N> faceforward(vec<T, N> n, vec<T, N> i, vec<T, N> reference) { return dot(reference, i) < (T)0 ? n : -n; }
template <class T, int N> inline vec<T, N> reflect(vec<T, N> i, vec<T, N> n) { return i - n * ((T)2 * dot(n, i)); }
template <class T, int N> inline vec<T, N> refract(vec<T, N> i, vec<T, N> n, T eta) {
  T cosine = dot(n, i), k = (T)1 - eta * eta * ((T)1 - cosine * cosine);
  return k < (T)0 ? vec<T, N>((T)0) : i * eta - n * (eta * cosine + sqrt(k));
}
namespace fast {
using metal::distance;
using metal::length;
using metal::normalize;
} // namespace fast
namespace precise {
using metal::distance;
using metal::length;
using metal::normalize;
} // namespace precise
} // namespace metal
