// Simdgroups of a threadgroup.
constant constexpr uint SIMDGROUPS = 8;
