define internal void @thread(ptr %bi, i32 %tx, i32 %ty, i32 %tz, i64 %lsp, ptr %t1, ptr %t2, ptr %t3, ptr %t4, ptr %t5, i64 %t6, ptr %t8, i64 %t9, ptr %t13, i64 %t14, ptr %t16, i64 %t17, ptr %t19) alwaysinline nounwind "probe-stack"="inline-asm" {
%a7 = alloca i64
store i64 0, ptr %a7
%a10 = alloca i64
store i64 0, ptr %a10
%a11 = alloca i32
store i32 0, ptr %a11
%a22 = alloca i32
store i32 0, ptr %a22
%a25 = alloca i32
store i32 0, ptr %a25
br label %body
body:
store i64 %t6, ptr %a7
store i64 %t9, ptr %a10
store i32 %tx, ptr %a11
%t12 = load i64, ptr %a7
%t15 = sub i64 %t12, %t14
%t18 = call i64 @llvm.umin.i64(i64 %t15, i64 %t17)
%t20 = getelementptr i8, ptr %t19, i64 %t18
%t21 = load i32, ptr %t20, align 1, !llvm.access.group !2
store i32 %t21, ptr %a22
%t23 = load i32, ptr %a22
%t24 = add i32 %t23, 1
store i32 %t24, ptr %a25
%t26 = load i32, ptr %a25
%t27 = load i64, ptr %a10
%t28 = sub i64 %t27, %t14
%t29 = call i64 @llvm.umin.i64(i64 %t28, i64 %t17)
%t30 = getelementptr i8, ptr %t19, i64 %t29
store i32 %t26, ptr %t30, align 1, !llvm.access.group !2
br label %ret.f1
dead.31:
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
%t13 = getelementptr i8, ptr %t2, i64 0
%t14 = load i64, ptr %t13, align 1, !invariant.load !0
%t16 = getelementptr i8, ptr %t2, i64 8
%t17 = load i64, ptr %t16, align 1, !invariant.load !0
%t19 = inttoptr i64 %t14 to ptr
br label %loop.z
loop.z:
%z = phi i32 [ 0, %0 ], [ %z.next, %next.z ]
br label %loop.y
loop.y:
%y = phi i32 [ 0, %loop.z ], [ %y.next, %next.y ]
br label %loop.x
loop.x:
%x = phi i32 [ 0, %loop.y ], [ %x.next, %loop.x ]
call void @thread(ptr %bi, i32 %x, i32 %y, i32 %z, i64 0, ptr %t1, ptr %t2, ptr %t3, ptr %t4, ptr %t5, i64 %t6, ptr %t8, i64 %t9, ptr %t13, i64 %t14, ptr %t16, i64 %t17, ptr %t19)
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

declare i64 @llvm.umin.i64(i64, i64)
!0 = !{}
!1 = !{!"branch_weights", i32 1, i32 1048576}
!2 = distinct !{}
!3 = distinct !{!3, !4}
!4 = !{!"llvm.loop.parallel_accesses", !2}
