define internal void @thread(ptr %bi, i32 %tx, i32 %ty, i32 %tz, i64 %lsp, ptr %t1, ptr %t2, ptr %t3, ptr %t4, ptr %t5, i64 %t6, ptr %t8, i64 %t9) alwaysinline nounwind "probe-stack"="inline-asm" {
%a7 = alloca i64
store i64 0, ptr %a7
%a10 = alloca i64
store i64 0, ptr %a10
%a11 = alloca i32
store i32 0, ptr %a11
%a12 = alloca float
store float 0.0, ptr %a12
%a14 = alloca float
store float 0.0, ptr %a14
%a16 = alloca float
store float 0.0, ptr %a16
%a19 = alloca float
store float 0.0, ptr %a19
%a20 = alloca double
store double 0.0, ptr %a20
%a22 = alloca double
store double 0.0, ptr %a22
%a24 = alloca double
store double 0.0, ptr %a24
%a27 = alloca double
store double 0.0, ptr %a27
br label %body
body:
store i64 %t6, ptr %a7
store i64 %t9, ptr %a10
store i32 %tx, ptr %a11
%t13 = load float, ptr %a12
%t15 = load float, ptr %a14
%t17 = load float, ptr %a16
%t18 = call float @rgpu.fma.rm.f32(float %t13, float %t15, float %t17)
store float %t18, ptr %a19
%t21 = load double, ptr %a20
%t23 = load double, ptr %a22
%t25 = load double, ptr %a24
%t26 = call double @rgpu.fma.rz.f64(double %t21, double %t23, double %t25)
store double %t26, ptr %a27
br label %ret.f1
dead.28:
br label %ret.f1
ret.f1:
ret void
}

define void @rgpu_block(ptr %bi) nounwind "probe-stack"="inline-asm" {
%launch = load ptr, ptr %bi, !invariant.load !0
%px = getelementptr i8, ptr %launch, i64 68
%py = getelementptr i8, ptr %launch, i64 72
%pz = getelementptr i8, ptr %launch, i64 76
%nx = load i32, ptr %px, !invariant.load !0
%ny = load i32, ptr %py, !invariant.load !0
%nz = load i32, ptr %pz, !invariant.load !0
%t1 = getelementptr i8, ptr %bi, i64 0
%t2 = load ptr, ptr %t1, align 1, !invariant.load !0
%t3 = getelementptr i8, ptr %t2, i64 24
%t4 = load ptr, ptr %t3, align 1, !invariant.load !0
%t5 = getelementptr i8, ptr %t4, i64 0
%t6 = load i64, ptr %t5, align 1, !invariant.load !0
%t8 = getelementptr i8, ptr %t4, i64 8
%t9 = load i64, ptr %t8, align 1, !invariant.load !0
br label %loop.z
loop.z:
%z = phi i32 [ 0, %0 ], [ %z.next, %next.z ]
br label %loop.y
loop.y:
%y = phi i32 [ 0, %loop.z ], [ %y.next, %next.y ]
br label %loop.x
loop.x:
%x = phi i32 [ 0, %loop.y ], [ %x.next, %loop.x ]
call void @thread(ptr %bi, i32 %x, i32 %y, i32 %z, i64 0, ptr %t1, ptr %t2, ptr %t3, ptr %t4, ptr %t5, i64 %t6, ptr %t8, i64 %t9)
%x.next = add nuw nsw i32 %x, 1
%x.more = icmp ult i32 %x.next, %nx
br i1 %x.more, label %loop.x, label %next.y , !llvm.loop !3
next.y:
%y.next = add nuw nsw i32 %y, 1
%y.more = icmp ult i32 %y.next, %ny
br i1 %y.more, label %loop.y, label %next.z
next.z:
%z.next = add nuw nsw i32 %z, 1
%z.more = icmp ult i32 %z.next, %nz
br i1 %z.more, label %loop.z, label %done
done:
ret void
}

define internal float @rgpu.fma.rm.f32(float %a, float %b, float %c) alwaysinline nounwind {
%ad = fpext float %a to double
%bd = fpext float %b to double
%cd = fpext float %c to double
%x = fmul double %ad, %bd
%y = fadd double %cd, -0.0
%s = fadd double %x, %y
%s1 = fsub double %s, %x
%s2 = fsub double %s, %s1
%s3 = fsub double %x, %s2
%s4 = fsub double %y, %s1
%e = fadd double %s3, %s4
%xb = bitcast double %x to i64
%yb = bitcast double %y to i64
%xy = or i64 %xb, %yb
%both = icmp ne i64 %xy, 0
%zero = fcmp oeq double %s, 0.0
%flip = and i1 %both, %zero
%sz = select i1 %flip, double -0.0, double %s
%f = call float @rgpu.narrow.rm(double %sz, double %e)
ret float %f
}
define internal float @rgpu.narrow.rm(double %s, double %e) alwaysinline nounwind {
%t = fptrunc double %s to float
%back = fpext float %t to double
%bits = bitcast float %t to i32
%eq = fcmp oeq double %back, %s
%sgt = fcmp ogt double %s, %back
%slt = fcmp olt double %s, %back
%egt = fcmp ogt double %e, 0.0
%elt = fcmp olt double %e, 0.0
%g1 = and i1 %eq, %egt
%gt = or i1 %sgt, %g1
%l1 = and i1 %eq, %elt
%lt = or i1 %slt, %l1
%neg = icmp slt i32 %bits, 0
%su = select i1 %neg, i32 -1, i32 1
%up = add i32 %bits, %su
%sd = select i1 %neg, i32 1, i32 -1
%down = add i32 %bits, %sd
%r = select i1 %lt, i32 %down, i32 %bits
%f = bitcast i32 %r to float
ret float %f
}
define internal double @rgpu.fma.rz.f64(double %a, double %b, double %c) noinline nounwind strictfp {
call void @llvm.set.rounding(i32 0) strictfp
%r = call double @llvm.experimental.constrained.fma.f64(double %a, double %b, double %c, metadata !"round.dynamic", metadata !"fpexcept.strict") strictfp
call void @llvm.set.rounding(i32 1) strictfp
ret double %r
}
declare double @llvm.experimental.constrained.fma.f64(double, double, double, metadata, metadata)
declare void @llvm.set.rounding(i32)
!0 = !{}
!1 = !{!"branch_weights", i32 1, i32 1048576}
!2 = distinct !{}
!3 = distinct !{!3, !4}
!4 = !{!"llvm.loop.parallel_accesses", !2}
