// Arithmetic: in f32, or in an integer type, which wraps.

struct Add {
    static float apply(float a, float b) { return a + b; }

    template <typename T>
    static T apply(T a, T b) { return T(ulong(a) + ulong(b)); }
};

struct Sub {
    static float apply(float a, float b) { return a - b; }

    template <typename T>
    static T apply(T a, T b) { return T(ulong(a) - ulong(b)); }
};

struct Mul {
    static float apply(float a, float b) { return a * b; }

    template <typename T>
    static T apply(T a, T b) { return T(ulong(a) * ulong(b)); }
};

// Integers towards zero, by zero zero; the least number by -1 is itself.
struct Div {
    static float apply(float a, float b) { return a / b; }

    template <typename T>
    static T apply(T a, T b) {
        if (T(-1) < T(0) && b == T(-1)) {
            return T(0ul - ulong(a));
        }
        return b == T(0) ? T(0) : T(a / b);
    }
};

// NaN if either is.
struct Min {
    static float apply(float a, float b) { return isnan(a) ? a : (a < b ? a : b); }

    template <typename T>
    static T apply(T a, T b) { return a < b ? a : b; }
};

// NaN if either is.
struct Max {
    static float apply(float a, float b) { return isnan(a) ? a : (a > b ? a : b); }

    template <typename T>
    static T apply(T a, T b) { return a > b ? a : b; }
};
