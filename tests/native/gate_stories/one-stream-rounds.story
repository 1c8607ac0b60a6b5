# A program copies from a stream that waits for the client, round after round, beside another lease.
10000000000 look phase=none word=17 beat=1731442 workers=1 share=500000
37210 tick > wake_watcher
12747 look
3671821 ask 52430 > hold signal wake_watcher wants=1 kernel_us=52
66222 look
10720 holding 1
4095 ask 52430 > hold wake_watcher
9565 look
87588 ask 52430 > hold wake_watcher
11259 look
213222 look gen=1 phase=open start=55924 word=28 > wake_held
20202 tick > wake_watcher
5888 look
6839 ask 52430 > enter active=1
0 enter > admit
703140 kind 1 0.1 65536 16
0 stream 1 1 legacy blocking
0 issue 1 1 524304 > in_flight=52430
33276 mark 1
9195 holding > wants=0 held_back=1181211
6982 complete 1 1 done=10253 found=10253 > charged=39200 active=0 in_flight=0 drained=10253
1080115 ask 78398 streams > enter active=1
0 enter > admit
118870 stream 2 1 blocking
0 wait_launched 2
10061 issue 2 1 262144 > in_flight=19599
9816 mark 2
5984 issue 2 1 262144 > in_flight=39198
4330 mark 2
3851 issue 2 1 262144 > in_flight=58797
4385 mark 2
3960 issue 2 1 262144 > in_flight=78396
3965 mark 2
191825 wait_begins 2:1
434354 ask 2500000 streams > admit
70604 kind 2 2500000 1 1000000000000
0 issue 1 2 1 > charged=228116 in_flight=2578396
13484 mark 1
8653 issue 1 2 1 > in_flight=5078396
4498 mark 1
4313 issue 1 2 1 > in_flight=7578396
4047 mark 1
6440 issue 1 2 1 > in_flight=10078396
4262 mark 1
3427 ask 2500000 streams > admit
4260 issue 1 2 1 > in_flight=12578396
4136 mark 1
3564 ask 2500000 streams > admit
3365 issue 1 2 1 > in_flight=15078396
4203 mark 1
3587 ask 2500000 streams > admit
4038 issue 1 2 1 > in_flight=17578396
7360 mark 1
3594 ask 2500000 streams > hold wake_watcher wants=1 kernel_us=1246
9641 holding 1
3625 ask 2500000 streams > hold wake_watcher
4074 ask 2500000 streams > hold wake_watcher
51533 ask 2500000 streams > hold wake_watcher
2264138 look phase=recalled start=10009272333 word=37 active=1 > wake_held mark
26491 tick streams > wake_watcher
19007 ask 2500000 streams > hold wake_watcher
1168847 look > mark
13558 tick streams > wake_watcher
2245304 look > signal hurry charged=3473207 active=0 in_flight=0 drained=0
54725 tick streams > wake_watcher
313104 look phase=none word=41 active=0 > wake_held
11531 tick streams > wake_watcher
13568 ask 2500000 streams > hold wake_watcher
2460336 look gen=2 phase=open start=486262 word=52 > wake_held
32564 tick streams > wake_watcher
7646 ask 2500000 streams > enter active=2
0 enter > admit
17711 issue 1 2 1 > in_flight=2500000
17444 mark 1
6018 ask 2500000 streams > admit
4965 issue 1 2 1 > in_flight=5000000
6967 mark 1
4748 ask 2500000 streams > admit
4700 issue 1 2 1 > in_flight=7500000
4825 mark 1
3754 ask 2500000 streams > admit
4062 issue 1 2 1 > in_flight=10000000
4671 mark 1
6330 ask 2500000 streams > admit
3961 issue 1 2 1 > in_flight=12500000
4396 mark 1
3850 ask 2500000 streams > admit
4235 issue 1 2 1 > in_flight=15000000
6000 mark 1
3918 ask 2500000 streams > admit
4357 issue 1 2 1 > in_flight=17500000
4447 mark 1
2926 ask 2500000 streams > admit
3974 issue 1 2 1 > in_flight=20000000
4473 mark 1
7061 ask 2500000 streams > hold wake_watcher
4392614 look phase=recalled start=10020171421 word=61 active=1 > signal wake_held hurry active=0 in_flight=0 drained=0
60625 tick streams > wake_watcher
23848 ask 2500000 streams > hold wake_watcher
305012 look phase=none word=65 active=0 > wake_held
14507 tick streams > wake_watcher
5824 ask 2500000 streams > hold wake_watcher
17330188 look phase=prepare word=74 > wake_held
22754 tick streams > wake_watcher
17529 ask 2500000 streams > hold wake_watcher
2306760 look gen=3 phase=slice start=57004 slice=25000000 word=83 > wake_held
14500 tick streams > wake_watcher
23885 ask 2500000 streams > enter active=3
0 enter > admit
20224 issue 1 2 1 > in_flight=2500000
9742 mark 1 > wake_watcher
5428 ask 2500000 streams > hold signal wake_watcher near_end=3
45479040 look phase=recalled start=10085811287 slice=0 word=93 beat=31853918 active=1 > signal wake_held hurry charged=45494210 active=0 near_end=0 in_flight=0 drained=0
108295 tick streams > wake_watcher
18634 ask 2500000 streams > hold wake_watcher
310072 look phase=none word=97 active=0 > wake_held
14251 tick streams > wake_watcher
22531 ask 2500000 streams > hold wake_watcher
6961003 look gen=4 phase=open start=98161 word=108 > wake_held
39579 tick streams > wake_watcher
7556 ask 2500000 streams > enter active=4
0 enter > admit
21654 issue 1 2 1 > in_flight=2500000
10291 mark 1
5832 ask 2500000 streams > admit
4809 issue 1 2 1 > in_flight=5000000
4450 mark 1
3723 ask 2500000 streams > admit
3947 issue 1 2 1 > in_flight=7500000
12088 mark 1
3671 ask 2500000 streams > admit
3277 holding > wants=0 held_back=87608839
4528 issue 1 2 1 > in_flight=10000000
4642 mark 1
4921107 look phase=recalled start=10098297227 word=117 active=1 > signal hurry active=0 in_flight=0 drained=0
75739 tick streams > wake_watcher
199475 look phase=none word=121 active=0
7666 tick streams > wake_watcher
439999249 wait_ends 2:1
35718 await_begins
5642 ask 0 streams in_stream returns=2 > hold signal wake_watcher wants=1 kernel_us=2455
26200924 look gen=5 phase=slice start=67887 slice=25000000 word=131 beat=9972972 > wake_held
27892 tick streams > wake_watcher
17313 ask 0 streams in_stream returns=2 > enter active=5
0 enter > admit wake_held wake_watcher in_flight=50078396
