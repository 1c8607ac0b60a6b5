# A client does not answer for long, with so much work set aside that little more is admitted.
10000000000 look phase=none word=17 beat=3830804 workers=1 share=500000
50683 tick > wake_watcher
13120 look
2637681 ask 52430 > hold signal wake_watcher wants=1 kernel_us=52
1968478 look gen=1 phase=open start=1638233 word=28 beat=927874
7914 look
3331 tick
10397 holding 1
3269 ask 52430 > enter active=1
0 enter > admit
10021 holding > wants=0 held_back=2003410
474618 kind 1 0.1 65536 16
0 stream 1 1 legacy blocking
0 issue 1 1 524304 > in_flight=52430
20744 mark 1
14164 complete 1 1 done=10130 found=10130 > charged=24778 active=0 in_flight=0 drained=10130
2615641 look phase=none start=10007830061 word=41
24738 tick > wake_watcher
5089 look
5605501 ask 2500000 streams > hold signal wake_watcher wants=1 kernel_us=358
311031 look
8157 holding 1
3124 ask 2500000 streams > hold wake_watcher
6814 look
5304 ask 2500000 streams > hold wake_watcher
6104 look
5482 ask 2500000 streams > hold wake_watcher
6107 look
4074 ask 2500000 streams > hold wake_watcher
6153 look
3919 ask 2500000 streams > hold wake_watcher
6007 look
3956 ask 2500000 streams > hold wake_watcher
6084 look
4082 ask 2500000 streams > hold wake_watcher
6095 look
4057 ask 2500000 streams > hold wake_watcher
6127 look
3995 ask 2500000 streams > hold wake_watcher
6016 look
3861 ask 2500000 streams > hold wake_watcher
6058 look
3992 ask 2500000 streams > hold wake_watcher
5968 look
4472 ask 2500000 streams > hold wake_watcher
6101 look
3961 ask 2500000 streams > hold wake_watcher
3078 ask 2500000 streams > hold wake_watcher
4511 ask 2500000 streams > hold wake_watcher
12667 look
6417420 look gen=2 phase=slice start=421602 slice=12512389 word=51 > wake_held
34056 tick streams > wake_watcher
5576 look
11255 ask 2500000 streams > enter active=2
0 enter > admit
78130 kind 2 2500000 1 1000000000000
0 stream 2 1
0 issue 2 2 1 > in_flight=2500000
10308 mark 2 > wake_watcher
25867 ask 49554 streams > admit
37285 wait_launched 2
5681 issue 2 1 262144 > in_flight=2512388
3571 mark 2 > wake_watcher
9989 issue 2 1 262144 > in_flight=2524776
3329 mark 2 > wake_watcher
2703 issue 2 1 262144 > in_flight=2537164
4995 mark 2 > wake_watcher
2702 issue 2 1 262144 > in_flight=2549552
2663 mark 2 > wake_watcher
69756 stream 3 1
0 ordered 3 2:1
9459 ask 2500000 streams > hold wake_watcher
32053822 look phase=recalled start=10052721313 slice=0 word=61 active=1 > wake_held mark
32413 tick streams > wake_watcher
23258 ask 2500000 streams > hold wake_watcher
1073860 look > mark
13940 tick streams > wake_watcher
16545574 look > mark
9025 tick streams > wake_held wake_watcher
24027 ask 2500000 streams > admit
58916 issue 3 2 1 > in_flight=5049552
9051 mark 3 > wake_watcher
4978 ask 2500000 streams > hold wake_watcher
1002465 look > mark
9950 tick streams > wake_watcher
31240500 tick streams > wake_watcher
1530908 look beat=412589 > mark
14478 tick streams > wake_watcher
1129896 look > mark
14660470 tick streams > wake_watcher
1155196 still_runs > charged=100781035
12149 look > mark
5822 tick streams > wake_held wake_watcher
48725 ask 2500000 streams > admit
24467 issue 3 2 1 > in_flight=7549552
13428 mark 3 > wake_watcher
8319 ask 2500000 streams > hold wake_watcher
1059160 look > mark
19755 tick streams > wake_watcher
4506395 tick streams > wake_watcher
322075 wait_begins 2:1
34973 complete 2 2 done=66366 began=106872770 found=2998 > wake_held charged=5988902 in_flight=5049552
50210 ask 106769937 streams > hold wake_watcher
719704 look > mark
12971 tick streams > wake_watcher
3343687 tick streams > wake_watcher
1108723 look > signal hurry charged=5301661 active=0 in_flight=0 drained=0
470820 tick streams > wake_watcher
8682 look phase=none word=65 active=0 > wake_held
10594 tick streams > wake_watcher
23230 ask 106769937 streams > hold wake_watcher
50086563 look
17912 tick streams > wake_watcher
50094396 look beat=29265924
24149 tick streams > wake_watcher
10123195 look phase=prepare word=74 > wake_held
27756 tick streams > wake_watcher
19165 ask 106769937 streams > hold wake_watcher
3355256 look gen=3 phase=slice start=113584 slice=18756194 word=83 > wake_held
22675 tick streams > wake_watcher
19000 ask 106769937 streams > enter active=3
0 enter > admit
121514 issue 3 2 1 > in_flight=106769937
12652 mark 3 > wake_watcher
7010 ask 106769937 streams > hold signal wake_watcher near_end=3
38771519 look phase=recalled start=10285766869 slice=0 word=93 active=1 > signal wake_held hurry charged=38791181 active=0 near_end=0 in_flight=0 drained=0
367928 tick streams > wake_watcher
21937 look phase=none word=97 active=0 > wake_held
5997 tick streams > wake_watcher
11635 ask 106769937 streams > hold wake_watcher
12893 ask 106769937 streams > hold wake_watcher
45154563 look phase=prepare word=106 beat=27234780 > wake_held
29967 tick streams > wake_watcher
19183 ask 106769937 streams > hold wake_watcher
4722708 look gen=4 phase=slice start=99954 slice=21878097 word=115 > wake_held
25113 tick streams > wake_watcher
18129 ask 106769937 streams > enter active=4
0 enter > hold signal wake_watcher active=0 near_end=4 spent=4
