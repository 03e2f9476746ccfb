// <metal_type_traits>, and only what it has: libraries put the rest of C++'s traits into the namespace themselves.
#pragma once

namespace metal {
template <class T, T V> struct integral_constant {
  static constexpr T value = V;
  typedef T value_type;
  typedef integral_constant type;
  constexpr operator T() const { return V; }
  constexpr T operator()() const { return V; }
};
template <bool B> using bool_constant = integral_constant<bool, B>;
typedef bool_constant<true> true_type;
typedef bool_constant<false> false_type;

template <bool B, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { typedef T type; };
template <bool B, class T = void> using enable_if_t = typename enable_if<B, T>::type;
template <bool B, class A, class C> struct conditional { typedef A type; };
template <class A, class C> struct conditional<false, A, C> { typedef C type; };
template <bool B, class A, class C> using conditional_t = typename conditional<B, A, C>::type;

template <class A, class B> struct is_same : false_type {};
template <class A> struct is_same<A, A> : true_type {};
template <class A, class B> constexpr bool is_same_v = is_same<A, B>::value;

template <class T> struct remove_const { typedef T type; };
template <class T> struct remove_const<const T> { typedef T type; };
template <class T> struct remove_volatile { typedef T type; };
template <class T> struct remove_volatile<volatile T> { typedef T type; };
template <class T> struct remove_cv { typedef typename remove_volatile<typename remove_const<T>::type>::type type; };
template <class T> struct remove_reference { typedef T type; };
template <class T> struct remove_reference<T&> { typedef T type; };
template <class T> struct remove_reference<T&&> { typedef T type; };
template <class T> struct remove_pointer { typedef T type; };
template <class T> struct remove_pointer<T*> { typedef T type; };
template <class T> struct remove_pointer<T* const> { typedef T type; };
template <class T> struct remove_extent { typedef T type; };
template <class T, size_t N> struct remove_extent<T[N]> { typedef T type; };
template <class T> struct remove_addrspace { typedef T type; };
#ifdef ELV_RULES
template <class T> struct remove_addrspace<__attribute__((opencl_global)) T> { typedef T type; };
template <class T> struct remove_addrspace<__attribute__((opencl_local)) T> { typedef T type; };
template <class T> struct remove_addrspace<__attribute__((opencl_constant)) T> { typedef T type; };
#endif
#ifdef __OPENCL_CPP_VERSION__
template <class T> struct remove_addrspace<__attribute__((opencl_global_device)) T> { typedef T type; };
template <class T> struct remove_addrspace<__global T> { typedef T type; };
template <class T> struct remove_addrspace<__local T> { typedef T type; };
template <class T> struct remove_addrspace<__private T> { typedef T type; };
template <class T> struct remove_addrspace<__generic T> { typedef T type; };
template <class T> struct remove_addrspace<__constant T> { typedef T type; };
#endif
template <class T> using remove_const_t = typename remove_const<T>::type;
template <class T> using remove_volatile_t = typename remove_volatile<T>::type;
template <class T> using remove_cv_t = typename remove_cv<T>::type;
template <class T> using remove_reference_t = typename remove_reference<T>::type;
template <class T> using remove_pointer_t = typename remove_pointer<T>::type;
template <class T> using remove_extent_t = typename remove_extent<T>::type;
template <class T> using remove_addrspace_t = typename remove_addrspace<T>::type;
} // namespace metal

namespace elv {
// A type without reference, qualifiers and address space: what a value of it is.
template <class T> using value_t = metal::remove_cv_t<metal::remove_addrspace_t<metal::remove_cv_t<metal::remove_reference_t<T>>>>;
} // namespace elv

namespace metal {
template <class T> struct remove_cvref { typedef elv::value_t<T> type; };
template <class T> using remove_cvref_t = elv::value_t<T>;
template <class T> struct decay { typedef elv::value_t<T> type; };
template <class T> using decay_t = elv::value_t<T>;
template <class T> struct add_const { typedef const T type; };
template <class T> using add_const_t = const T;

template <class T> struct is_const : false_type {};
template <class T> struct is_const<const T> : true_type {};
template <class T> struct is_volatile : false_type {};
template <class T> struct is_volatile<volatile T> : true_type {};
template <class T> struct is_reference : false_type {};
template <class T> struct is_reference<T&> : true_type {};
template <class T> struct is_pointer : false_type {};
template <class T> struct is_pointer<T*> : true_type {};
template <class T> struct is_pointer<T* const> : true_type {};
template <class T> struct is_array : false_type {};
template <class T, size_t N> struct is_array<T[N]> : true_type {};
template <class T> struct is_void : is_same<remove_cv_t<T>, void> {};
} // namespace metal

namespace elv {
template <class T> struct is_integer : metal::false_type {};
template <> struct is_integer<bool> : metal::true_type {};
template <> struct is_integer<char> : metal::true_type {};
template <> struct is_integer<signed char> : metal::true_type {};
template <> struct is_integer<uchar> : metal::true_type {};
template <> struct is_integer<short> : metal::true_type {};
template <> struct is_integer<ushort> : metal::true_type {};
template <> struct is_integer<int> : metal::true_type {};
template <> struct is_integer<uint> : metal::true_type {};
template <> struct is_integer<long> : metal::true_type {};
template <> struct is_integer<ulong> : metal::true_type {};
template <> struct is_integer<long long> : metal::true_type {};
template <> struct is_integer<unsigned long long> : metal::true_type {};
template <class T> struct is_float : metal::false_type {};
template <> struct is_float<float> : metal::true_type {};
template <> struct is_float<half> : metal::true_type {};
template <> struct is_float<bfloat> : metal::true_type {};
} // namespace elv

namespace metal {
template <class T> struct is_integral : elv::is_integer<elv::value_t<T>> {};
template <class T> struct is_floating_point : elv::is_float<elv::value_t<T>> {};
template <class T> constexpr bool is_integral_v = is_integral<T>::value;
template <class T> constexpr bool is_floating_point_v = is_floating_point<T>::value;
template <class T> struct is_arithmetic : bool_constant<is_integral_v<T> || is_floating_point_v<T>> {};
template <class T> constexpr bool is_arithmetic_v = is_arithmetic<T>::value;
template <class T> struct is_scalar : bool_constant<is_arithmetic_v<T> || __is_enum(T) || is_pointer<T>::value> {};
template <class T> struct is_unsigned : bool_constant<is_integral_v<T> && (elv::value_t<T>(0) < elv::value_t<T>(-1))> {};
template <class T> constexpr bool is_unsigned_v = is_unsigned<T>::value;
template <class T> struct is_signed : bool_constant<is_arithmetic_v<T> && !is_unsigned_v<T>> {};
template <class T> struct is_enum : bool_constant<__is_enum(T)> {};
template <class T> struct is_class : bool_constant<__is_class(T)> {};
template <class T> struct is_union : bool_constant<__is_union(T)> {};
template <class T> struct is_trivial : bool_constant<__is_trivial(T)> {};
template <class T> struct is_trivially_copyable : bool_constant<__is_trivially_copyable(T)> {};
template <class T> struct is_standard_layout : bool_constant<__is_standard_layout(T)> {};
template <class A, class B> struct is_convertible : bool_constant<ELV_IS_CONVERTIBLE(A, B)> {};
template <class A, class B> struct is_base_of : bool_constant<__is_base_of(A, B)> {};
template <class T, class... A> struct is_constructible : bool_constant<__is_constructible(T, A...)> {};
template <class T> constexpr bool is_signed_v = is_signed<T>::value;
template <class T> constexpr bool is_scalar_v = is_scalar<T>::value;
template <class T> constexpr bool is_const_v = is_const<T>::value;
template <class T> constexpr bool is_volatile_v = is_volatile<T>::value;
template <class T> constexpr bool is_reference_v = is_reference<T>::value;
template <class T> constexpr bool is_pointer_v = is_pointer<T>::value;
template <class T> constexpr bool is_array_v = is_array<T>::value;
template <class T> constexpr bool is_void_v = is_void<T>::value;
template <class T> constexpr bool is_enum_v = is_enum<T>::value;
template <class T> constexpr bool is_class_v = is_class<T>::value;
template <class T> constexpr bool is_union_v = is_union<T>::value;
template <class T> constexpr bool is_trivial_v = is_trivial<T>::value;
template <class T> constexpr bool is_trivially_copyable_v = is_trivially_copyable<T>::value;
template <class T> constexpr bool is_standard_layout_v = is_standard_layout<T>::value;
template <class A, class B> constexpr bool is_convertible_v = is_convertible<A, B>::value;
template <class A, class B> constexpr bool is_base_of_v = is_base_of<A, B>::value;
template <class T, class... A> constexpr bool is_constructible_v = is_constructible<T, A...>::value;

template <class... B> struct disjunction : bool_constant<(false || ... || bool(B::value))> {};
template <class... B> struct conjunction : bool_constant<(true && ... && bool(B::value))> {};
template <class B> struct negation : bool_constant<!bool(B::value)> {};
template <class... B> constexpr bool disjunction_v = disjunction<B...>::value;
template <class... B> constexpr bool conjunction_v = conjunction<B...>::value;
template <class B> constexpr bool negation_v = negation<B>::value;
// The names under which some libraries write the same.
template <class... B> using _disjunction = disjunction<B...>;
template <class... B> using _conjunction = conjunction<B...>;
#ifdef ELV_RULES
template <class T>
struct __is_valid_simdgroup_type : bool_constant<is_arithmetic_v<T> && sizeof(T) <= 4 && !is_same_v<T, bool> && !is_same_v<T, bfloat>> {};
#else
template <class T> struct __is_valid_simdgroup_type : bool_constant<is_arithmetic_v<T> && sizeof(T) <= 4 && !is_same_v<T, bool>> {};
#endif

template <class T> struct make_unsigned { typedef T type; };
template <> struct make_unsigned<char> { typedef uchar type; };
template <> struct make_unsigned<signed char> { typedef uchar type; };
template <> struct make_unsigned<short> { typedef ushort type; };
template <> struct make_unsigned<int> { typedef uint type; };
template <> struct make_unsigned<long> { typedef ulong type; };
template <class T> using make_unsigned_t = typename make_unsigned<T>::type;
template <class T> struct make_signed { typedef T type; };
template <> struct make_signed<uchar> { typedef char type; };
template <> struct make_signed<ushort> { typedef short type; };
template <> struct make_signed<uint> { typedef int type; };
template <> struct make_signed<ulong> { typedef long type; };
template <class T> using make_signed_t = typename make_signed<T>::type;
template <class T> struct underlying_type { typedef __underlying_type(T) type; };
template <class T> using underlying_type_t = typename underlying_type<T>::type;

template <class T> T&& declval();
template <class F, class... A> struct invoke_result { typedef decltype(declval<F>()(declval<A>()...)) type; };
template <class F, class... A> using invoke_result_t = typename invoke_result<F, A...>::type;
template <class F, class... A> using result_of_t = typename invoke_result<F, A...>::type;

template <class... A> struct common_type;
template <class A> struct common_type<A> { typedef elv::value_t<A> type; };
template <class A, class B> struct common_type<A, B> { typedef elv::value_t<decltype(true ? elv::value_t<A>() : elv::value_t<B>())> type; };
template <class A, class B, class... C> struct common_type<A, B, C...> : common_type<typename common_type<A, B>::type, C...> {};
template <class... A> using common_type_t = typename common_type<A...>::type;

template <class T, T... I> struct integer_sequence {
  typedef T value_type;
  static constexpr size_t size() { return sizeof...(I); }
};
template <size_t... I> using index_sequence = integer_sequence<size_t, I...>;
#ifdef __clang__
template <class T, T N> using make_integer_sequence = __make_integer_seq<integer_sequence, T, N>;
#else
} // namespace metal

namespace elv {
template <class T, size_t N, T... I> struct count_up : count_up<T, N - 1, (T)(N - 1), I...> {};
template <class T, T... I> struct count_up<T, 0, I...> { typedef metal::integer_sequence<T, I...> type; };
} // namespace elv

namespace metal {
template <class T, T N> using make_integer_sequence = typename elv::count_up<T, N>::type;
#endif
template <size_t N> using make_index_sequence = make_integer_sequence<size_t, N>;
template <class... T> using index_sequence_for = make_index_sequence<sizeof...(T)>;

template <class A, class B = A> constexpr void swap(A& a, B& b) {
  elv::value_t<A> kept = a;
  a = b;
  b = kept;
}
} // namespace metal
