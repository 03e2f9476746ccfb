use crate::Module;

/// The rules that a text breaks, each with its line.
fn rules(text: &str) -> Vec<(u32, &'static str)> {
    rules_for(text, 320)
}

fn rules_for(text: &str, metal_version: u32) -> Vec<(u32, &'static str)> {
    let module = Module::read(&format!("# 1 \"k.metal\"\n{text}")).unwrap();
    module.lints(metal_version).into_iter().map(|lint| (lint.location.line, lint.rule)).collect()
}

#[test]
fn a_kernel_without_faults_has_no_lints() {
    let text = r#"
        using namespace metal;
        constant float table[2] = {1, 2};
        constant constexpr int N = 4;
        constant bool flag [[function_constant(0)]];
        typedef decltype(nullptr) null;
        enum class Mode : uint { a, b };
        struct Pair { float a, b; thread float& first() { return a; } Pair(const Pair&) thread = default; void operator=(float) = delete; };
        template <typename T> struct Box { T item; static constexpr constant int size = 2; };
        template <typename T, typename... R> T sum(T first, R... rest) { return first + sum(rest...); }
        template <typename T> T keep(T& x) { return x; }
        float exp(Pair p) { return exp(p.a) * exp(p.b); }
        float helper(const device float* p, constant Pair& q, threadgroup float* s, thread float* t);
        float helper(const device float* p, constant Pair& q, threadgroup float* s, thread float* t) { return p[0] * q.a + *s * *t; }
        kernel void k(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
            threadgroup float shared[4];
            constexpr int local = 3;
            static constant int fixed[] = {1};
            const int product = local * fixed[0];
            thread float* own = (thread float*)x;
            float y = (float)local * i, z = (y) * (y);
            helper(x, *(constant Pair*)0, shared, own);
        }
        template [[host_name("b")]] kernel void generic<float>(device float*);
    "#;
    assert_eq!(
        rules(
            &text.replace("template [[host_name", "template <typename T> kernel void generic(device T* x [[buffer(0)]]) {}\n template [[host_name")
        ),
        []
    );
}

#[test]
fn words_are_reported_with_their_lines() {
    let text = "float f() {\n double x = 1;\n goto end;\n end: try { throw 1; } catch (int) {}\n auto p = new int; delete p;\n return (float)dynamic_cast<int>(x); }";
    assert_eq!(rules(text), [(2, "double"), (3, "goto"), (4, "exception"), (5, "new"), (5, "delete"), (6, "run-time-type")]);
    assert_eq!(rules("struct A {\n virtual void f();\n};"), [(2, "virtual")]);
    assert_eq!(rules("void f(device atomic_long* a, device atomic<long>* b, device atomic_int* c);").len(), 2);
}

#[test]
fn bfloat_waits_for_metal_3_1() {
    let text = "kernel void k(device bfloat* x [[buffer(0)]]) { x[0] = x[1]; }";
    assert_eq!(rules_for(text, 310), []);
    assert_eq!(rules_for(text, 300), [(1, "bfloat")]);
}

#[test]
fn variables_outside_kernels_are_constant() {
    assert_eq!(rules("int counter = 0;\nstatic float x;\nconst int n = 3;"), [(1, "mutable-global"), (2, "mutable-global"), (3, "mutable-global")]);
    assert_eq!(rules("threadgroup float shared[32];"), [(1, "threadgroup-global")]);
    assert_eq!(rules("void f() { threadgroup float sums[32] = {0}; }"), []);
    assert_eq!(rules("void f() {\n static int calls = 0;\n static constexpr int n = 1;\n}"), [(2, "static-local"), (3, "static-local")]);
}

#[test]
fn functions_may_call_themselves_but_not_be_main_or_take_anything() {
    assert_eq!(rules("int f(int n) { return n ? n * f(n - 1) : 1; }"), []);
    assert_eq!(rules("int main() { return 0; }"), [(1, "main")]);
    assert_eq!(rules("int print(constant char* text, ...);"), [(1, "variadic")]);
}

#[test]
fn classes_have_no_base_outside_apple_s_own_code() {
    assert_eq!(rules("struct A {};\nstruct B : A {};\nclass alignas(8) n::C<A, 2> final : public A {};"), [(2, "inheritance"), (3, "inheritance")]);
    assert_eq!(rules("enum class E : uint {};\nstruct F { uint x : 3; struct F* thread next; };\ntemplate <class T> struct G {};"), []);
    let pragma = |state: &str| format!("#pragma METAL internals : {state}\nstruct B : A {{}};\n");
    assert_eq!(rules(&(pragma("enable") + &pragma("disable"))), [(4, "inheritance")]);
}

#[test]
fn lambdas_wait_for_metal_3_2() {
    let text = "void f() {\n auto g = [](int x) { return x; };\n h([&] { return 1; }, a[0](1), [=]() mutable -> int { return 2; });\n}";
    assert_eq!(rules_for(text, 320), []);
    assert_eq!(rules_for(text, 310), [(2, "lambda"), (3, "lambda")]);
    assert_eq!(rules_for("[[kernel]] void k(device int* x [[buffer(0)]]) { int y[2] = {[0] = 1}; (x)[0] = y[1]; auto [a, b] = p(); }", 310), []);
}

#[test]
fn pointers_name_their_memory() {
    assert_eq!(rules("void f(float* x) {}"), [(1, "address-space")]);
    assert_eq!(rules("void f(const float& x);"), [(1, "address-space")]);
    assert_eq!(rules("struct S {\n float* p;\n};"), [(2, "address-space")]);
    assert_eq!(rules("void f(device float* x) {\n float* y = x;\n const uint& z = 1;\n}"), [(2, "address-space"), (3, "address-space")]);
    assert_eq!(rules("void f(device float* x) { (void)(int*)x; }"), [(1, "address-space")]);
    assert_eq!(rules("template <typename T> void f(T* x, thread T& y) {}"), []);
}
