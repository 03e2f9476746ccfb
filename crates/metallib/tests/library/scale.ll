; A kernel as Apple's compiler would make it, of a text like this one:
;   constant bool doubled [[function_constant(3)]];
;   [[max_total_threads_per_threadgroup(64)]] kernel void scale(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
;     constant float& factor [[buffer(4)]], threadgroup float* shared [[threadgroup(0)]], uint i [[thread_position_in_grid]])
source_filename = "scale"
target datalayout = "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-f32:32:32-f64:64:64-v16:16:16-v24:32:32-v32:32:32-v48:64:64-v64:64:64-v96:128:128-v128:128:128-v192:256:256-v256:256:256-v512:512:512-v1024:1024:1024-n8:16:32"
target triple = "air64-apple-macosx14.0.0"

@_Z7doubled.MTL_FC_INIT_3_b = internal unnamed_addr addrspace(2) externally_initialized constant i8 undef, section "air.fc_initializer", align 1

define void @scale(ptr addrspace(1) noundef "air-buffer-no-alias" %0, ptr addrspace(1) noundef "air-buffer-no-alias" %1, ptr addrspace(2) noundef align 4 dereferenceable(4) %2, ptr addrspace(3) noundef %3, i32 noundef %4) local_unnamed_addr #0 {
  %6 = zext i32 %4 to i64
  %7 = getelementptr inbounds float, ptr addrspace(1) %0, i64 %6
  %8 = load float, ptr addrspace(1) %7, align 4
  %9 = load float, ptr addrspace(2) %2, align 4
  %10 = fmul float %8, %9
  %11 = load i8, ptr addrspace(2) @_Z7doubled.MTL_FC_INIT_3_b, align 1
  %12 = icmp eq i8 %11, 0
  %13 = fadd float %10, %10
  %14 = select i1 %12, float %10, float %13
  %15 = getelementptr inbounds float, ptr addrspace(1) %1, i64 %6
  store float %14, ptr addrspace(1) %15, align 4
  ret void
}

attributes #0 = { mustprogress nounwind "frame-pointer"="all" "no-builtins" }

!llvm.ident = !{!0}
!air.version = !{!1}
!air.language_version = !{!2}
!air.compile_options = !{!3, !4}
!air.kernel = !{!5}

!0 = !{!"Elinvar test"}
!1 = !{i32 2, i32 6, i32 0}
!2 = !{!"Metal", i32 3, i32 1, i32 0}
!3 = !{!"air.compile.denorms_disable"}
!4 = !{!"air.compile.fast_math_disable"}
!5 = !{ptr @scale, !6, !7, !13}
!6 = !{}
!7 = !{!8, !9, !10, !11, !12}
!8 = !{i32 0, !"air.buffer", !"air.location_index", i32 0, i32 1, !"air.read", !"air.address_space", i32 1, !"air.arg_type_size", i32 4, !"air.arg_type_align_size", i32 4, !"air.arg_type_name", !"float", !"air.arg_name", !"x"}
!9 = !{i32 1, !"air.buffer", !"air.location_index", i32 1, i32 1, !"air.read_write", !"air.address_space", i32 1, !"air.arg_type_size", i32 4, !"air.arg_type_align_size", i32 4, !"air.arg_type_name", !"float", !"air.arg_name", !"y"}
!10 = !{i32 2, !"air.function_constant", !6, !"air.buffer", !"air.buffer_size", i32 4, !"air.location_index", i32 4, i32 1, !"air.read", !"air.address_space", i32 2, !"air.arg_type_size", i32 4, !"air.arg_type_align_size", i32 4, !"air.arg_type_name", !"float", !"air.arg_name", !"factor"}
!11 = !{i32 3, !"air.buffer", !"air.location_index", i32 0, i32 1, !"air.read_write", !"air.address_space", i32 3, !"air.arg_type_size", i32 4, !"air.arg_type_align_size", i32 4, !"air.arg_type_name", !"float", !"air.arg_name", !"shared", !"air.arg_unused"}
!12 = !{i32 4, !"air.thread_position_in_grid", !"air.arg_type_name", !"uint", !"air.arg_name", !"i"}
!13 = !{!"air.max_work_group_size", i32 64}
