// sums += 64 rows · others over 16 elements, by compute capability 9.0. Both sides are in shared memory.
//
// Macros: EIGHTS and COLUMNS (the others, in eights, up to 32, and in all).

#define REGISTERS_1 "%2, %3, %4, %5"
#define REGISTERS_2 REGISTERS_1 ", %6, %7, %8, %9"
#define REGISTERS_3 REGISTERS_2 ", %10, %11, %12, %13"
#define REGISTERS_4 REGISTERS_3 ", %14, %15, %16, %17"
#define REGISTERS_5 REGISTERS_4 ", %18, %19, %20, %21"
#define REGISTERS_6 REGISTERS_5 ", %22, %23, %24, %25"
#define REGISTERS_7 REGISTERS_6 ", %26, %27, %28, %29"
#define REGISTERS_8 REGISTERS_7 ", %30, %31, %32, %33"
#define REGISTERS_9 REGISTERS_8 ", %34, %35, %36, %37"
#define REGISTERS_10 REGISTERS_9 ", %38, %39, %40, %41"
#define REGISTERS_11 REGISTERS_10 ", %42, %43, %44, %45"
#define REGISTERS_12 REGISTERS_11 ", %46, %47, %48, %49"
#define REGISTERS_13 REGISTERS_12 ", %50, %51, %52, %53"
#define REGISTERS_14 REGISTERS_13 ", %54, %55, %56, %57"
#define REGISTERS_15 REGISTERS_14 ", %58, %59, %60, %61"
#define REGISTERS_16 REGISTERS_15 ", %62, %63, %64, %65"
#define REGISTERS_17 REGISTERS_16 ", %66, %67, %68, %69"
#define REGISTERS_18 REGISTERS_17 ", %70, %71, %72, %73"
#define REGISTERS_19 REGISTERS_18 ", %74, %75, %76, %77"
#define REGISTERS_20 REGISTERS_19 ", %78, %79, %80, %81"
#define REGISTERS_21 REGISTERS_20 ", %82, %83, %84, %85"
#define REGISTERS_22 REGISTERS_21 ", %86, %87, %88, %89"
#define REGISTERS_23 REGISTERS_22 ", %90, %91, %92, %93"
#define REGISTERS_24 REGISTERS_23 ", %94, %95, %96, %97"
#define REGISTERS_25 REGISTERS_24 ", %98, %99, %100, %101"
#define REGISTERS_26 REGISTERS_25 ", %102, %103, %104, %105"
#define REGISTERS_27 REGISTERS_26 ", %106, %107, %108, %109"
#define REGISTERS_28 REGISTERS_27 ", %110, %111, %112, %113"
#define REGISTERS_29 REGISTERS_28 ", %114, %115, %116, %117"
#define REGISTERS_30 REGISTERS_29 ", %118, %119, %120, %121"
#define REGISTERS_31 REGISTERS_30 ", %122, %123, %124, %125"
#define REGISTERS_32 REGISTERS_31 ", %126, %127, %128, %129"
#define FOUR(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define SUMS_1 FOUR(0)
#define SUMS_2 SUMS_1, FOUR(4)
#define SUMS_3 SUMS_2, FOUR(8)
#define SUMS_4 SUMS_3, FOUR(12)
#define SUMS_5 SUMS_4, FOUR(16)
#define SUMS_6 SUMS_5, FOUR(20)
#define SUMS_7 SUMS_6, FOUR(24)
#define SUMS_8 SUMS_7, FOUR(28)
#define SUMS_9 SUMS_8, FOUR(32)
#define SUMS_10 SUMS_9, FOUR(36)
#define SUMS_11 SUMS_10, FOUR(40)
#define SUMS_12 SUMS_11, FOUR(44)
#define SUMS_13 SUMS_12, FOUR(48)
#define SUMS_14 SUMS_13, FOUR(52)
#define SUMS_15 SUMS_14, FOUR(56)
#define SUMS_16 SUMS_15, FOUR(60)
#define SUMS_17 SUMS_16, FOUR(64)
#define SUMS_18 SUMS_17, FOUR(68)
#define SUMS_19 SUMS_18, FOUR(72)
#define SUMS_20 SUMS_19, FOUR(76)
#define SUMS_21 SUMS_20, FOUR(80)
#define SUMS_22 SUMS_21, FOUR(84)
#define SUMS_23 SUMS_22, FOUR(88)
#define SUMS_24 SUMS_23, FOUR(92)
#define SUMS_25 SUMS_24, FOUR(96)
#define SUMS_26 SUMS_25, FOUR(100)
#define SUMS_27 SUMS_26, FOUR(104)
#define SUMS_28 SUMS_27, FOUR(108)
#define SUMS_29 SUMS_28, FOUR(112)
#define SUMS_30 SUMS_29, FOUR(116)
#define SUMS_31 SUMS_30, FOUR(120)
#define SUMS_32 SUMS_31, FOUR(124)

#define TEXT(x) #x
#define NUMBERED(name, n) name##n
#define MULTIPLY_EIGHTS(TYPE, N, COLUMNS, TURNED)                                                                                                             \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" TEXT(COLUMNS) "k16.f32." TYPE "." TYPE " {" NUMBERED(REGISTERS_, N) "}, %0, %1, 1, 1, 1, " TURNED ", 0;" \
                 : "+l"(rows), "+l"(others), NUMBERED(SUMS_, N))

// The first eight rows in registers, of zeros the others: of a row's 16 elements a thread has those from lane % 4 · 2 on and from 8 further on, in pairs.
#define MULTIPLY_HELD(TYPE, N, COLUMNS)                                                                                                      \
    asm volatile("{\n.reg .b32 low, high, none;\nmov.b64 {low, high}, %0;\nmov.b32 none, 0;\nwgmma.mma_async.sync.aligned.m64n" TEXT(COLUMNS)    \
                 "k16.f32." TYPE "." TYPE " {" NUMBERED(REGISTERS_, N) "}, {low, none, high, none}, %1, 1, 1, 1, 0;\n}"                        \
                 : "+l"(rows), "+l"(others), NUMBERED(SUMS_, N))

template <typename T>
DEVICE void multiply_held(float (&sums)[4 * EIGHTS], u64 rows, u64 others) {
    if constexpr (SAME<T, bf16>) {
        MULTIPLY_HELD("bf16", EIGHTS, COLUMNS);
    } else {
        MULTIPLY_HELD("f16", EIGHTS, COLUMNS);
    }
}

// Of f16 or bf16. Rows that are turned lie by elements: 64 of each.
template <typename T, bool TURNED = false>
DEVICE void multiply(float (&sums)[4 * EIGHTS], u64 rows, u64 others) {
    if constexpr (SAME<T, bf16> && TURNED) {
        MULTIPLY_EIGHTS("bf16", EIGHTS, COLUMNS, "1");
    } else if constexpr (SAME<T, bf16>) {
        MULTIPLY_EIGHTS("bf16", EIGHTS, COLUMNS, "0");
    } else if constexpr (TURNED) {
        MULTIPLY_EIGHTS("f16", EIGHTS, COLUMNS, "1");
    } else {
        MULTIPLY_EIGHTS("f16", EIGHTS, COLUMNS, "0");
    }
}
