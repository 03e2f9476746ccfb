// Matrices, column by column.
#pragma once

namespace metal {
template <class T, int C, int R = C> struct matrix {
  vec<T, R> columns[C];

  matrix() = default;
  template <class U, class = enable_if_t<elv::is_scalar_for<U, T>>> explicit matrix(U diagonal) {
    for (int i = 0; i < C; i++) {
      columns[i] = vec<T, R>((T)0);
      if (i < R) columns[i][i] = (T)diagonal;
    }
  }
  template <class U, class = enable_if_t<!is_same_v<U, T>>> explicit matrix(matrix<U, C, R> other) {
    for (int i = 0; i < C; i++) columns[i] = vec<T, R>(other.columns[i]);
  }
  template <class... A, class = enable_if_t<(C > 1) && (sizeof...(A) == C || sizeof...(A) == C * R)>> matrix(A... values) {
    int k = 0;
    if constexpr (sizeof...(A) == C)
      ((columns[k++] = values), ...);
    else
      ((columns[k / R][k % R] = (T)values, k++), ...);
  }
  vec<T, R>& operator[](int i) { return columns[i]; }
  const vec<T, R>& operator[](int i) const { return columns[i]; }

  friend vec<T, R> operator*(matrix m, vec<T, C> v) {
    vec<T, R> sum = m.columns[0] * v[0];
    for (int i = 1; i < C; i++) sum += m.columns[i] * v[i];
    return sum;
  }
  friend vec<T, C> operator*(vec<T, R> v, matrix m) {
    vec<T, C> product;
    for (int i = 0; i < C; i++) {
      T sum = v[0] * m.columns[i][0];
      for (int j = 1; j < R; j++) sum += v[j] * m.columns[i][j];
      product[i] = sum;
    }
    return product;
  }
  friend matrix operator+(matrix a, matrix b) { return a += b; }
  friend matrix operator-(matrix a, matrix b) { return a -= b; }
  friend matrix operator-(matrix a) { return a * (T)-1; }
  friend matrix operator*(matrix a, T s) { return a *= s; }
  friend matrix operator*(T s, matrix a) { return a *= s; }
  matrix& operator+=(matrix b) {
    for (int i = 0; i < C; i++) columns[i] += b.columns[i];
    return *this;
  }
  matrix& operator-=(matrix b) {
    for (int i = 0; i < C; i++) columns[i] -= b.columns[i];
    return *this;
  }
  matrix& operator*=(T s) {
    for (int i = 0; i < C; i++) columns[i] *= s;
    return *this;
  }
};

template <class T, int K, int C, int R> matrix<T, C, R> operator*(matrix<T, K, R> a, matrix<T, C, K> b) {
  matrix<T, C, R> product;
  for (int i = 0; i < C; i++) product.columns[i] = a * b.columns[i];
  return product;
}
template <class T, int C, int R> matrix<T, R, C> transpose(matrix<T, C, R> a) {
  matrix<T, R, C> t;
  for (int i = 0; i < C; i++)
    for (int j = 0; j < R; j++) t.columns[j][i] = a.columns[i][j];
  return t;
}
template <class T> T determinant(matrix<T, 2, 2> m) { return m[0][0] * m[1][1] - m[1][0] * m[0][1]; }
template <class T> T determinant(matrix<T, 3, 3> m) {
  return m[0][0] * (m[1][1] * m[2][2] - m[2][1] * m[1][2]) - m[1][0] * (m[0][1] * m[2][2] - m[2][1] * m[0][2]) +
         m[2][0] * (m[0][1] * m[1][2] - m[1][1] * m[0][2]);
}
template <class T> T determinant(matrix<T, 4, 4> m) {
  T sum = 0;
  for (int i = 0; i < 4; i++) {
    matrix<T, 3, 3> minor;
    for (int c = 1; c < 4; c++)
      for (int r = 0, k = 0; r < 4; r++)
        if (r != i) minor[c - 1][k++] = m[c][r];
    sum += (i % 2 ? -m[0][i] : m[0][i]) * determinant(minor);
  }
  return sum;
}
} // namespace metal
