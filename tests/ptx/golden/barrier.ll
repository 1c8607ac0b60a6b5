
@rgpu_frame_probe = global i64 0
define ptr @rgpu_thread(ptr %bi, i32 %tid, ptr %frame) presplitcoroutine nounwind "probe-stack"="inline-asm" {
%id = call token @llvm.coro.id(i32 16, ptr null, ptr null, ptr null)
%asked = icmp eq ptr %frame, null
br i1 %asked, label %probe, label %begin, !prof !1
probe:
%size = call i64 @llvm.coro.size.i64()
store i64 %size, ptr @rgpu_frame_probe
ret ptr null
begin:
%handle = call ptr @llvm.coro.begin(token %id, ptr %frame)
%lsp = add i64 0, 0
%launch.c = load ptr, ptr %bi, !invariant.load !0
%px = getelementptr i8, ptr %launch.c, i64 68
%py = getelementptr i8, ptr %launch.c, i64 72
%nx = load i32, ptr %px, !invariant.load !0
%ny = load i32, ptr %py, !invariant.load !0
%tx = urem i32 %tid, %nx
%row = udiv i32 %tid, %nx
%ty = urem i32 %row, %ny
%tz = udiv i32 %row, %ny
%t1 = getelementptr i8, ptr %bi, i64 0
%t2 = load ptr, ptr %t1, align 1, !invariant.load !0
%t3 = getelementptr i8, ptr %t2, i64 24
%t4 = load ptr, ptr %t3, align 1, !invariant.load !0
%t13 = getelementptr i8, ptr %bi, i64 8
%t14 = load i64, ptr %t13, align 1, !invariant.load !0
%t15 = getelementptr i8, ptr %t2, i64 0
%t16 = load i64, ptr %t15, align 1, !invariant.load !0
%t17 = sub i64 %t14, %t16
%t19 = inttoptr i64 %t16 to ptr
%t21 = getelementptr i8, ptr %t2, i64 72
%t22 = load i32, ptr %t21, align 1, !invariant.load !0
%t25 = getelementptr i8, ptr %t2, i64 68
%t26 = load i32, ptr %t25, align 1, !invariant.load !0
%t30 = getelementptr i8, ptr %bi, i64 32
%t31 = load ptr, ptr %t30, align 1, !invariant.load !0
%t45 = getelementptr i8, ptr %t2, i64 8
%t46 = load i64, ptr %t45, align 1, !invariant.load !0
%a7 = alloca i64
store i64 0, ptr %a7
%a10 = alloca i64
store i64 0, ptr %a10
%a11 = alloca i32
store i32 0, ptr %a11
%t23 = mul i32 %t22, %tz
%t24 = add i32 %t23, %ty
%t27 = mul i32 %t24, %t26
%t28 = add i32 %t27, %tx
%t29 = zext i32 %t28 to i64
%t32 = getelementptr [64 x i8], ptr %t31, i64 %t29
%a41 = alloca i32
store i32 0, ptr %a41
br label %body
body:
%t5 = getelementptr i8, ptr %t4, i64 0
%t6 = load i64, ptr %t5, align 1, !invariant.load !0
store i64 %t6, ptr %a7
%t8 = getelementptr i8, ptr %t4, i64 8
%t9 = load i64, ptr %t8, align 1, !invariant.load !0
store i64 %t9, ptr %a10
store i32 %tx, ptr %a11
%t12 = load i32, ptr %a11
%t18 = add i64 %t17, 0
%t20 = getelementptr i8, ptr %t19, i64 %t18
store i32 %t12, ptr %t20, align 1
%t33 = getelementptr i8, ptr %t32, i64 0
store i32 1, ptr %t33
%t34 = getelementptr i8, ptr %t32, i64 8
store i32 0, ptr %t34
%t35 = getelementptr i8, ptr %t32, i64 12
store i32 0, ptr %t35
%t37 = call i8 @llvm.coro.suspend(token none, i1 false)
switch i8 %t37, label %coro.end [ i8 0, label %resume.36 i8 1, label %coro.cleanup ]
resume.36:
%t38 = add i64 %t17, 0
%t39 = getelementptr i8, ptr %t19, i64 %t38
%t40 = load i32, ptr %t39, align 1
store i32 %t40, ptr %a41
%t42 = load i32, ptr %a41
%t43 = load i64, ptr %a10
%t44 = sub i64 %t43, %t16
%t47 = call i64 @llvm.umin.i64(i64 %t44, i64 %t46)
%t48 = getelementptr i8, ptr %t19, i64 %t47
store i32 %t42, ptr %t48, align 1
br label %ret.f1
dead.49:
br label %ret.f1
ret.f1:
br label %thread.exit
thread.exit:
%final = call i8 @llvm.coro.suspend(token none, i1 true)
switch i8 %final, label %coro.end [ i8 0, label %coro.never i8 1, label %coro.cleanup ]
coro.never:
unreachable
coro.cleanup:
%memory = call ptr @llvm.coro.free(token %id, ptr %handle)
br label %coro.end
coro.end:
call void @llvm.coro.end(ptr %handle, i1 false, token none)
ret ptr %handle
}
declare token @llvm.coro.id(i32, ptr, ptr, ptr)
declare i64 @llvm.coro.size.i64()
declare ptr @llvm.coro.begin(token, ptr)
declare i8 @llvm.coro.suspend(token, i1)
declare ptr @llvm.coro.free(token, ptr)
declare void @llvm.coro.end(ptr, i1, token)

declare i64 @llvm.umin.i64(i64, i64)
!0 = !{}
!1 = !{!"branch_weights", i32 1, i32 1048576}
!2 = distinct !{}
!3 = distinct !{!3, !4}
!4 = !{!"llvm.loop.parallel_accesses", !2}
