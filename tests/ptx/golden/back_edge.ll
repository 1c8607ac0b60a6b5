define internal void @thread(ptr %bi, i32 %tx, i32 %ty, i32 %tz, i64 %lsp, ptr %t1, ptr %t2, ptr %t3, ptr %t4, ptr %t5, i64 %t6, ptr %t8, i64 %t9, ptr %t21, ptr %t22, ptr %t26, ptr %t27, ptr %t28, ptr %t29) alwaysinline nounwind "probe-stack"="inline-asm" {
%a7 = alloca i64
store i64 0, ptr %a7
%a10 = alloca i64
store i64 0, ptr %a10
%a11 = alloca i32
store i32 0, ptr %a11
%a12 = alloca i32
store i32 0, ptr %a12
%a17 = alloca i1
store i1 0, ptr %a17
br label %body
body:
store i64 %t6, ptr %a7
store i64 %t9, ptr %a10
store i32 %tx, ptr %a11
br label %L1.0
L1.0:
%t13 = load i32, ptr %a12
%t14 = sub i32 %t13, 1
store i32 %t14, ptr %a12
%t15 = load i32, ptr %a12
%t16 = icmp ne i32 %t15, 0
store i1 %t16, ptr %a17
%t18 = load i1, ptr %a17
br i1 %t18, label %do.19, label %after.20
do.19:
%t23 = load atomic i32, ptr %t22 monotonic, align 4
%t24 = icmp ne i32 %t23, 0
br i1 %t24, label %trap.702, label %ok.25, !prof !1
ok.25:
br label %L1.0
dead.30:
br label %after.20
after.20:
br label %ret.f1
dead.31:
br label %ret.f1
ret.f1:
ret void
trap.702:
call void %t29(ptr %bi, i32 702)
unreachable
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
%t21 = getelementptr i8, ptr %t2, i64 40
%t22 = load ptr, ptr %t21, align 1, !invariant.load !0
%t26 = getelementptr i8, ptr %t2, i64 32
%t27 = load ptr, ptr %t26, align 1, !invariant.load !0
%t28 = getelementptr i8, ptr %t27, i64 0
%t29 = load ptr, ptr %t28, align 1, !invariant.load !0
br label %loop.z
loop.z:
%z = phi i32 [ 0, %0 ], [ %z.next, %next.z ]
br label %loop.y
loop.y:
%y = phi i32 [ 0, %loop.z ], [ %y.next, %next.y ]
br label %loop.x
loop.x:
%x = phi i32 [ 0, %loop.y ], [ %x.next, %loop.x ]
call void @thread(ptr %bi, i32 %x, i32 %y, i32 %z, i64 0, ptr %t1, ptr %t2, ptr %t3, ptr %t4, ptr %t5, i64 %t6, ptr %t8, i64 %t9, ptr %t21, ptr %t22, ptr %t26, ptr %t27, ptr %t28, ptr %t29)
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

!0 = !{}
!1 = !{!"branch_weights", i32 1, i32 1048576}
!2 = distinct !{}
!3 = distinct !{!3, !4}
!4 = !{!"llvm.loop.parallel_accesses", !2}
