# A chain of streams waits for a stream that waits for the client; other streams go on.
10000000000 look phase=none word=17 beat=3735474 workers=1 share=500000
38007 tick > wake_watcher
11399 look
3768786 ask 52430 > hold signal wake_watcher wants=1 kernel_us=52
357397 look gen=1 phase=open start=69733 word=28 beat=1616903
10578 look
5381 tick
9684 holding 1
3698 ask 52430 > enter active=1
0 enter > admit
9032 holding > wants=0 held_back=395770
585755 kind 1 0.1 65536 16
0 stream 1 1 legacy blocking
0 issue 1 1 524304 > in_flight=52430
23574 mark 1
32423 complete 1 1 done=26961 found=26961 > charged=29036 active=0 in_flight=0 drained=26961
6747337 look phase=none start=10011603051 word=41
51065 tick streams > wake_watcher
108970 ask 58070 streams > hold signal wake_watcher wants=1 kernel_us=53
60035 holding 1
3495 ask 58070 streams > hold wake_watcher
4953 ask 58070 streams > hold wake_watcher
180199 ask 58070 streams > hold wake_watcher
16625 look
8417513 look gen=2 phase=slice start=140294 slice=12514518 word=51 > wake_held
37990 tick streams > wake_watcher
7020 look
9137 ask 58070 streams > enter active=2
0 enter > admit
144673 stream 2 1
0 wait_launched 2
12251 issue 2 1 262144 > in_flight=14517
6182 mark 2 > wake_watcher
28812 wait_begins 2:1
17431 issue 2 1 262144 > in_flight=29034
4981 mark 2 > wake_watcher
4697 issue 2 1 262144 > in_flight=43551
4521 mark 2 > wake_watcher
4069 issue 2 1 262144 > in_flight=58068
4304 mark 2 > wake_watcher
139063 stream 3 1
0 ordered 3 2:1
9414 holding > wants=0 held_back=9513135
497431 holding 1
9021 ask 2500000 streams > admit
11884 kind 2 2500000 1 1000000000000
0 issue 3 2 1 > in_flight=2558068
14568 mark 3 > wake_watcher
5401 ask 2500000 streams > hold wake_watcher wants=1 kernel_us=628
31709490 look phase=recalled start=10053128246 slice=0 word=61 active=1 > signal wake_held hurry charged=32471269 active=0 in_flight=0 drained=0
182906 tick streams > wake_watcher
36352 ask 2500000 streams > hold wake_watcher
276864 look phase=none word=65 active=0 > wake_held
14237 tick streams > wake_watcher
6407 ask 2500000 streams > hold wake_watcher
39149487 look phase=prepare word=74 > wake_held
57150 tick streams > wake_watcher
8831 ask 2500000 streams > hold wake_watcher
4500928 look gen=3 phase=slice start=103870 slice=18757259 word=83 > wake_held
25772 tick streams > wake_watcher
17757 ask 2500000 streams > enter active=3
0 enter > admit
25840 issue 3 2 1 > in_flight=2500000
13882 mark 3 > wake_watcher
6392 ask 2500000 streams > admit
4922 issue 3 2 1 > in_flight=5000000
4580 mark 3 > wake_watcher
3776 ask 2500000 streams > hold wake_watcher
38805989 look phase=recalled start=10136270318 slice=0 word=93 beat=33593315 active=1 > signal wake_held hurry charged=38839541 active=0 in_flight=0 drained=0
311098 tick streams > wake_watcher
18963 look phase=none word=97 active=0 > wake_held
0 ask 2500000 streams > hold wake_watcher
16036 ask 2500000 streams > hold wake_watcher
25564 look
4163 tick streams > wake_watcher
18743198 look phase=prepare word=106 > wake_held
28746 tick streams > wake_watcher
20484 ask 2500000 streams > hold wake_watcher
26815104 look gen=4 phase=slice start=96494 slice=21878629 word=115 > wake_held
28750 tick streams > wake_watcher
20165 ask 2500000 streams > enter active=4
0 enter > admit
24666 issue 3 2 1 > in_flight=2500000
6020 mark 3 > wake_watcher
6610 ask 2500000 streams > admit
4663 issue 3 2 1 > in_flight=5000000
7180 mark 3 > wake_watcher
3793 ask 2500000 streams > hold wake_watcher
41924561 look phase=recalled start=10224280082 slice=0 word=125 beat=21502612 active=1 > signal wake_held hurry charged=41952827 active=0 in_flight=0 drained=0
254793 tick streams > wake_watcher
16014 look phase=none word=129 active=0 > wake_held
0 ask 2500000 streams > hold wake_watcher
12226 ask 2500000 streams > hold wake_watcher
8979 look
2674 tick streams > wake_watcher
20298846 look phase=prepare word=138 > wake_held
26457 tick streams > wake_watcher
20486 ask 2500000 streams > hold wake_watcher
4607377 look gen=5 phase=slice start=99985 slice=23439314 word=147 > wake_held
27523 tick streams > wake_watcher
20547 ask 2500000 streams > enter active=5
0 enter > admit
33478 issue 3 2 1 > in_flight=2500000
6328 mark 3 > wake_watcher
6075 ask 2500000 streams > admit
5399 issue 3 2 1 > in_flight=5000000
4600 mark 3 > wake_watcher
4141 ask 2500000 streams > hold wake_watcher
43488685 look phase=recalled start=10293124710 slice=0 word=157 active=1 > signal wake_held hurry charged=43515228 active=0 in_flight=0 drained=0
481909 tick streams > wake_watcher
6406 look phase=none word=161 active=0 > wake_held
3897 tick streams > wake_watcher
16643 ask 2500000 streams > hold wake_watcher
44707977 look phase=prepare word=170 beat=35461195 > wake_held
22396 tick streams > wake_watcher
18946 ask 2500000 streams > hold wake_watcher
5473575 look gen=6 phase=slice start=54704 slice=24219657 word=179 > wake_held
23305 tick streams > wake_watcher
17024 ask 2500000 streams > enter active=6
0 enter > admit
19283 issue 3 2 1 > in_flight=2500000
4190 mark 3 > wake_watcher
4693 ask 2500000 streams > admit
7234 issue 3 2 1 > in_flight=5000000
3193 mark 3 > wake_watcher
2648 ask 2500000 streams > hold wake_watcher
44341847 look phase=recalled start=10388279876 slice=0 word=189 active=1 > signal wake_held hurry charged=44363805 active=0 in_flight=0 drained=0
480084 tick streams > wake_watcher
5720 look phase=none word=193 active=0 > wake_held
15599 tick streams > wake_watcher
18033 ask 2500000 streams > hold wake_watcher
45243749 look phase=prepare word=202 beat=31039754 > wake_held
44230 tick streams > wake_watcher
8320 ask 2500000 streams > hold wake_watcher
5265122 look gen=7 phase=slice start=78400 slice=24609828 word=211 > wake_held
29444 tick streams > wake_watcher
22024 ask 2500000 streams > enter active=7
0 enter > admit
23056 issue 3 2 1 > in_flight=2500000
6161 mark 3 > wake_watcher
118792 stream 4 1
0 ordered 4 2:1
9317 ask 2500000 streams > hold signal wake_watcher near_end=7
44626089 look phase=recalled start=10484195616 slice=0 word=221 active=1 > signal wake_held hurry charged=44760359 active=0 near_end=0 in_flight=0 drained=0
393846 tick streams > wake_watcher
7092 look phase=none word=225 active=0 > wake_held
5009 tick streams > wake_watcher
15901 ask 2500000 streams > hold wake_watcher
11951 ask 2500000 streams > hold wake_watcher
34841994 look gen=8 phase=open start=428414 word=236 beat=16372146 > wake_held
21937 tick streams > wake_watcher
19033 ask 2500000 streams > enter active=8
0 enter > admit
18781 issue 4 2 1 > in_flight=2500000
9670 mark 4
6537 ask 2500000 streams > admit
4820 issue 4 2 1 > in_flight=5000000
9801 mark 4
4322 ask 2500000 streams > admit
4190 issue 4 2 1 > in_flight=7500000
4445 mark 4
3615 ask 2500000 streams > admit
3746 issue 4 2 1 > in_flight=10000000
4093 mark 4
3129 ask 2500000 streams > admit
3782 issue 4 2 1 > in_flight=12500000
4371 mark 4
3680 ask 2500000 streams > admit
3927 issue 4 2 1 > in_flight=15000000
6699 mark 4
3489 ask 2500000 streams > admit
4276 issue 4 2 1 > in_flight=17500000
7776 mark 4
3647 ask 2500000 streams > admit
4015 issue 4 2 1 > in_flight=20000000
4492 mark 4
3559 ask 2500000 streams > hold wake_watcher
970925 wait_ends 2:1
25350 await_begins
5278 ask 0 streams in_stream returns=2 > admit wake_held wake_watcher in_flight=45058068
