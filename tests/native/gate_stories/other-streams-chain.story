# Two chained client waits: work comes behind both.
10000000000 look phase=none word=17 beat=1426641 workers=1 share=500000
49370 tick > wake_watcher
15432 look
10706365 ask 52430 > hold signal wake_watcher wants=1 kernel_us=52
58124 look
12073 holding 1
4062 ask 52430 > hold wake_watcher
9814 look
10581 ask 52430 > hold wake_watcher
9468 look
466623 look gen=1 phase=open start=183930 word=28 > wake_held
32753 tick > wake_watcher
7052 look
7806 ask 52430 > enter active=1
0 enter > admit
535090 kind 1 0.1 65536 16
0 stream 1 1 legacy blocking
0 issue 1 1 524304 > in_flight=52430
25200 mark 1
11477 holding > wants=0 held_back=1190123
7505 complete 1 1 done=9914 found=9914 > charged=34268 active=0 in_flight=0 drained=9914
3210049 ask 68534 streams > enter active=1
0 enter > admit
109326 stream 2 1
0 wait_launched 2
10375 issue 2 1 262144 > in_flight=17133
7834 mark 2
6707 issue 2 1 262144 > in_flight=34266
3967 mark 2
6574 issue 2 1 262144 > in_flight=51399
4231 mark 2
3822 issue 2 1 262144 > in_flight=68532
3889 mark 2
50149 stream 3 1
0 wait_launched 3
5257 issue 3 1 262144 > in_flight=85665
4125 mark 3
4161 issue 3 1 262144 > in_flight=102798
4131 mark 3
3892 issue 3 1 262144 > in_flight=119931
3884 mark 3
3889 issue 3 1 262144 > in_flight=137064
3983 mark 3
61203 stream 4 1
0 ordered 4 2:1
9077 ordered 4 3:1
1577339 look phase=recalled start=10017066659 word=37 active=1 > mark
22232 tick streams > wake_watcher
433028 ask 2500000 streams > hold wake_watcher wants=1 kernel_us=360
12147 await_begins
3829 ask 2500000 streams > hold wake_watcher
34402 wait_begins 3:1
45243 wait_begins 2:1
49613652 look > signal hurry charged=51932647 active=0 in_flight=0 drained=0
179418 tick streams > wake_watcher
468570 look phase=none word=41 active=0 > wake_held
15759 tick streams > wake_watcher
12280 ask 2500000 streams > hold wake_watcher
2247243 look gen=2 phase=open start=71987 word=52 > wake_held
17619 tick streams > wake_watcher
13461 ask 2500000 streams > enter active=2
0 enter > admit
6232 await_ends > wants=0 held_back=53859978
17742 kind 2 2500000 1 1000000000000
0 issue 4 2 1 > in_flight=2500000
70935 mark 4
16560 issue 4 2 1 > in_flight=5000000
18310 mark 4
5859 issue 4 2 1 > in_flight=7500000
7435 mark 4
4703 issue 4 2 1 > in_flight=10000000
4022 mark 4
4487 ask 2500000 streams > admit
7976 issue 4 2 1 > in_flight=12500000
4212 mark 4
3815 ask 2500000 streams > admit
3924 issue 4 2 1 > in_flight=15000000
4029 mark 4
3585 ask 2500000 streams > admit
3799 issue 4 2 1 > in_flight=17500000
3901 mark 4
14259 ask 2500000 streams > admit
3903 issue 4 2 1 > in_flight=20000000
3924 mark 4
51154 ask 2500000 streams > hold wake_watcher wants=1 kernel_us=1764
4364 holding 1
3276 ask 2500000 streams > hold wake_watcher
3843 ask 2500000 streams > hold wake_watcher
4685096 look phase=recalled start=10075146887 word=61 active=1 > signal wake_held hurry active=0 in_flight=0 drained=0
81985 tick streams > wake_watcher
17762 ask 2500000 streams > hold wake_watcher
187341 look phase=none word=65 active=0 > wake_held
8777 tick streams > wake_watcher
9393 ask 2500000 streams > hold wake_watcher
15932228 look phase=prepare word=74 beat=2224720 > wake_held
20437 tick streams > wake_watcher
32094 ask 2500000 streams > hold wake_watcher
4073934 look phase=none word=81 > wake_held
17242 tick streams > wake_watcher
18127 ask 2500000 streams > hold wake_watcher
5387792 look phase=prepare word=90 > wake_held
17536 tick streams > wake_watcher
55441 ask 2500000 streams > hold wake_watcher
1106997 look gen=3 phase=slice start=72096 slice=25000000 word=99 > wake_held
12639 tick streams > wake_watcher
12117 ask 2500000 streams > enter active=3
0 enter > admit
19487 issue 4 2 1 > in_flight=2500000
5185 mark 4 > wake_watcher
4374 ask 2500000 streams > hold signal wake_watcher near_end=3
45206363 look phase=recalled start=10147374138 slice=0 word=109 active=1 > signal wake_held hurry charged=45215922 active=0 near_end=0 in_flight=0 drained=0
112678 tick streams > wake_watcher
17267 ask 2500000 streams > hold wake_watcher
208247 look gen=4 phase=slice start=68567 slice=25000000 word=115 active=0 > wake_held
8589 tick streams > wake_watcher
8823 ask 2500000 streams > enter active=4
0 enter > admit
7219 holding > wants=0 held_back=131146631
27060 issue 4 2 1 > in_flight=2500000
7589 mark 4 > wake_watcher
45280704 look phase=recalled start=10193052314 slice=0 word=125 beat=3748058 active=1 > signal hurry charged=45288293 active=0 in_flight=0 drained=0
84193 tick streams > wake_watcher
245040 look phase=none word=129 active=0
6451 tick streams > wake_watcher
412185267 wait_ends 2:1
21743 await_begins
4512 ask 0 streams in_stream returns=2 > hold signal wake_watcher wants=1 kernel_us=2330
770838 look gen=5 phase=open start=297248 word=140 beat=16567629 > wake_held
25310 tick streams > wake_watcher
16936 ask 0 streams in_stream returns=2 > enter active=5
0 enter > admit wake_held wake_watcher in_flight=68532
0 await_ends > wants=0 held_back=131959715
0 wait_passed 2:1
1118025 complete 2 2 done=782747 found=1157 > charged=335278 in_flight=51399
15978 complete 2 3 done=577355 found=481 > charged=221370 in_flight=34266
5955 complete 2 4 done=354101 found=130 > charged=229209 in_flight=17133
4999 complete 2 5 done=107650 found=165 > charged=251450 active=0 in_flight=0 drained=107650
3538195 look phase=none start=10611095756 word=153
23117 tick streams > wake_watcher
775827392 wait_ends 3:1
18435 await_begins
6805 ask 0 streams in_stream returns=3 > hold signal wake_watcher wants=1
463463 look gen=6 phase=open start=54436 word=164 beat=96777893 > wake_held
9784 tick streams > wake_watcher
10676 ask 0 streams in_stream returns=3 > enter active=6
0 enter > admit wake_held wake_watcher in_flight=25068532
0 await_ends > wants=0 held_back=132443638
0 wait_passed 3:1
3826511 complete 3 6 done=651428 found=1118 > charged=3175083 in_flight=25051399
20141 complete 3 7 done=405746 found=354 > charged=265823 in_flight=25034266
3784 complete 3 8 done=142282 found=78 > charged=267248 in_flight=25017133
3029 complete 3 9 done=29935 found=29935 > charged=115376 in_flight=25000000
13804 look beat=547512 active=1
3005761 look phase=recalled start=11394328458 word=173 > mark
19908 tick streams > wake_watcher
19362 complete 4 10 done=33664 found=674 > charged=3055106 in_flight=22500000
4724125 complete 4 11 done=2005350 found=1856 > charged=2752439 in_flight=20000000
19192 complete 4 12 done=1015317 found=228 > charged=1009225 in_flight=17500000
288396 complete 4 13 done=224875 found=488 > charged=1078838 in_flight=15000000
913880 complete 4 14 done=94973 found=661 > charged=1043782 in_flight=12500000
927510 complete 4 15 done=656 found=656 > charged=1021827 in_flight=10000000
2016227 complete 4 16 done=922446 found=949 > charged=1094437 in_flight=7500000
339466 complete 4 17 done=124632 found=881 > charged=1137280 in_flight=5000000
959870 complete 4 18 done=865 began=1092868 found=865 > charged=1083637 in_flight=2500000
1115167 complete 4 19 done=1835 began=1116238 found=1835 > wake_watcher look charged=1114197 in_flight=0 drained=1835
0 look > signal active=0
52655 look active=0
394089 look phase=none word=177
10410 tick streams > wake_watcher
12295 look
212966355 ask 26214 streams > hold signal wake_watcher wants=1 kernel_us=2042
482313 look gen=7 phase=open start=127656 word=188 beat=28595400
5676 tick streams
14745 holding 1
2897 ask 26214 streams > enter active=7
0 enter > admit
3706 holding > wants=0 held_back=132952975
76299 kind 3 0.1 65536 16
0 issue 1 3 262144 > in_flight=26214
15151 mark 1
7304 ask 26214 streams > admit
67504 issue 1 3 262144 > in_flight=52428
3466 mark 1
98937 look active=1
152093 ask 26214 streams > admit
5598 issue 1 3 16 > in_flight=58981
3764 mark 1
220546 complete 1 20 done=518247 found=477964 > charged=56116 in_flight=32767
7052 complete 1 21 done=484746 found=484746 > charged=40553 in_flight=6553
2994 complete 1 22 done=227301 found=227301 > charged=260439 active=0 in_flight=0 drained=227301
589002 look phase=none start=11620866412 word=201 active=0
14155 tick streams > wake_watcher
4421 look
