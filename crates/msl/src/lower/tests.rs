use crate::Module;

/// The lowered text, without its entry points and on lines of its own.
fn lowered(text: &str) -> String {
    let module = Module::read(&format!("# 1 \"k.metal\"\n{text}")).unwrap();
    let lowered = module.lower_for_simulator(&[]).unwrap().text;
    lowered.split_once("# 1 \"k.metal\"\n").unwrap().1.split_once("\n# 1 \"elinvar-entries\"").unwrap().0.to_owned()
}

/// The same with every run of white space as one blank.
fn words(text: &str) -> String {
    lowered(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn lines_stay_where_they_are() {
    let text = "template [[host_name(\"f\")]]\nkernel void g<float>(\n  device float*);\nkernel void\nk(device float* x [[\nbuffer(0)]]) {\n  threadgroup float s[4],\n t;\n}\n";
    let text = format!("template <typename T> kernel void g(device T* x) {{}}\n{text}");
    assert_eq!(lowered(&text).lines().count(), text.lines().count());
}

#[test]
fn kernels_become_static_functions_without_attributes() {
    assert_eq!(words("kernel void k(device float* x [[buffer(0)]]) {}"), "static void k(device float* x ) {}");
    assert_eq!(
        words("template <typename T> [[kernel]] void k(device T* x [[buffer(0)]]) {}"),
        "template <typename T> static void k(device T* x ) {}"
    );
    assert_eq!(words("static kernel void k() {}"), "static void k() {}");
}

#[test]
fn entries_unpack_what_the_kernel_binds() {
    let text =
        "template <typename T> kernel void k(device T* x [[buffer(3)]], threadgroup T* s [[threadgroup(1)]], uint i [[thread_position_in_grid]]) {}";
    let lowered = Module::read(text).unwrap().lower_for_simulator(&["k<half>"]).unwrap();
    assert_eq!((lowered.entries[0].kernel.as_str(), lowered.entries[0].symbol.as_str()), ("k<half>", "elv_entry_0"));
    let entry = "ELV_ENTRY(elv_entry_0, (&::k<half>), elv::buffer<3>, elv::threadgroup_memory<1>, elv::position<0>)";
    assert!(lowered.text.contains(entry), "{}", lowered.text);
}

#[test]
fn threadgroup_variables_are_allocated_by_the_runtime() {
    let body = words("kernel void k() { threadgroup float a[4][N], b; threadgroup vec<T, 2>* p = 0; }");
    assert!(
        body.contains(
            "ELV_THREADGROUP_VARIABLES(0, \"a, b\", float a[4][N]; float b; ); auto& a = elv_threadgroup_0.a; auto& b = elv_threadgroup_0.b;"
        ),
        "{body}"
    );
    assert!(body.contains("threadgroup vec<T, 2>* p = 0;"), "{body}");
    let body = words("kernel void k() { alignas(16) threadgroup float a[4]; threadgroup union { float f; uint u; } b; }");
    assert!(body.contains("\"a\", alignas(16) float a[4]; );") && body.contains("\"b\", union { float f; uint u; } b; );"), "{body}");
}

#[test]
fn thread_stays_on_pointers_and_goes_from_variables() {
    assert_eq!(
        words("void f(thread float& x) { thread float y = x; const thread int z = 1; thread float* p = &y; }"),
        "void f(thread float& x) { float y = x; const int z = 1; thread float* p = &y; }"
    );
    assert_eq!(
        words("struct S { float get() const device; float get() const thread { return 0; } };"),
        "struct S { float get() const ELV_METHOD_DEVICE; float get() const ELV_METHOD_THREAD { return 0; } };"
    );
}

#[test]
fn swizzles_become_member_templates_unless_they_are_members() {
    assert_eq!(
        words("void f() { a.xy = b.yx; c->rgb += d.x; }"),
        "void f() { a.template swizzled<0, 1>() = b.template swizzle<1, 0>(); c->template swizzled<0, 1, 2>() += d.x; }"
    );
    assert_eq!(words("struct S { float xy; }; float f(S s) { return s.xy; }"), "struct S { float xy; }; float f(S s) { return s.xy; }");
}

#[test]
fn operands_of_conditions_become_values() {
    assert_eq!(words("int x = a ? b : c;"), "int x = a ? elv_value(b) : elv_value(c);");
    assert_eq!(
        words("int x = a ? b ? 1 : 2 : f(c, d) + 1, y;"),
        "int x = a ? elv_value(b ? elv_value(1) : elv_value(2)) : elv_value(f(c, d) + 1), y;"
    );
    assert_eq!(
        words("f<(a ? 1 : 2)>(b ? v<int>::x : g<2>(3));"),
        "f<(a ? elv_value(1) : elv_value(2))>(b ? elv_value(v<int>::x) : elv_value(g<2>(3)));"
    );
}

#[test]
fn function_constants_take_the_values_of_macros() {
    let module = Module::read("constant bool c [[function_constant(3)]];\nbool f() { return metal::is_function_constant_defined(c) && is_function_constant_defined(other); }").unwrap();
    let text = module.lower_for_simulator(&[]).unwrap().text;
    assert!(text.starts_with("#ifdef ELV_CONSTANT_3\n#define ELV_IS_DEFINED_3 1\n#else\n"), "{text}");
    assert!(text.contains("ELV_TABLE bool c = (bool)(ELV_CONSTANT_3);"), "{text}");
    assert!(text.contains("(ELV_IS_DEFINED_3 != 0)") && text.contains("is_function_constant_defined(other)"), "{text}");
}

#[test]
fn tables_are_distinguished_from_pointers_to_constant_memory() {
    assert_eq!(
        words("constant float t[] = {1}; float f(constant float* p); struct S { static constant int n = 1; };"),
        "ELV_TABLE float t[] = {1}; float f(constant float* p); struct S { static ELV_TABLE int n = 1; };"
    );
}

#[test]
fn references_to_template_parameters_do_not_deduce_address_spaces() {
    assert_eq!(words("template <typename T> T f(thread T& a, T b) { T c; }"), "template <typename T> T f(thread elv::value_t<T>& a, T b) { T c; }");
    assert_eq!(
        words("template <typename T> T f(thread T& a) { T c; }"),
        "template <typename T> elv::value_t<T> f(thread T& a) { elv::value_t<T> c; }"
    );
    assert_eq!(
        words("template <int N> void f(thread const float (&a)[N]);"),
        "template <int N, typename elv_element_8> void f(elv_element_8 (&a)[N]);"
    );
    assert_eq!(words("template <typename T> T f(device T& a) { T c; }"), "template <typename T> T f(device T& a) { T c; }");
}

#[test]
fn functions_as_template_arguments_and_arrays_as_parameters_take_other_forms() {
    assert_eq!(words("template <void (*f)(int), int n> void g();"), "template <void (&f)(int), int n> void g();");
    assert_eq!(words("using F = void (*)(int); template <F f> void g();"), "using F = void (*)(int); template <auto f> void g();");
    assert_eq!(words("void f(thread float x[4], uint y[2][3], device float z[2]);"), "void f(thread float *x, uint (*y)[3], device float z[2]);");
}

#[test]
fn overloads_for_wider_address_spaces_yield() {
    let text =
        "float f(device float* p); float f(constant float* p); float f(thread float& p) { return 0; } float g(thread float* p); float g(float x);";
    assert_eq!(
        words(text),
        "float f(device float* p); template <int...> float f(constant float* p); template <int...> float f(thread float& p) { return 0; } \
         float g(thread float* p); float g(float x);"
    );
}

#[test]
fn vectors_in_braces_and_amounts_are_marked() {
    assert_eq!(
        words("void f() { uint4 a = {x, y}; vec<T, 2> b{1}; float2 c[2] = {}; p += n; p += n + 1; }"),
        "void f() { uint4 a = {elv::in_braces{}, x, y}; vec<T, 2> b{elv::in_braces{}, 1}; float2 c[2] = {}; p += ELV_AMOUNT(n); p += n + 1; }"
    );
}

#[test]
fn only_pragmas_of_arithmetic_stay() {
    let text = lowered(
        "#pragma METAL fp math_mode(safe)\n#pragma clang loop unroll(full)\n#pragma METAL internals : enable\n#pragma METAL fp contract(fast)\nint x;",
    );
    assert_eq!(text, "#pragma clang fp contract(off)\n\n\n#pragma clang fp contract(fast)\nint x;");
}
