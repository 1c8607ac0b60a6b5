# One stream has several client waits, with host functions that ask for the token.
10000000000 look phase=none word=17 beat=1273852 workers=1 share=500000
46382 tick > wake_watcher
15214 look
6005524 ask 52430 > hold signal wake_watcher wants=1 kernel_us=52
75679 look
12321 holding 1
4351 ask 52430 > hold wake_watcher
10724 look
193195 ask 52430 > hold wake_watcher
18664 look
306896 look gen=1 phase=open start=120053 word=28 > wake_held
13862 tick > wake_watcher
13132 ask 52430 > enter active=1
0 enter > admit
626041 kind 1 0.1 65536 16
0 stream 1 1 legacy blocking
0 issue 1 1 524304 > in_flight=52430
27740 mark 1
13130 holding > wants=0 held_back=1315735
7019 complete 1 1 done=9872 found=9872 > charged=38017 active=0 in_flight=0 drained=9872
31494 look
1205894 ask 10066329 streams > enter active=1
0 enter > admit
462720 stream 2 1
0 wait_launched 2
424985 ask 2500000 streams > admit
14151 kind 2 2500000 1 1000000000000
0 issue 2 2 1 > in_flight=2500000
14111 mark 2
507308 wait_launched 2
25477 issue 2 2 1 > in_flight=5000000
8317 mark 2
518576 wait_launched 2
35199 issue 2 2 1 > in_flight=7500000
8221 mark 2
344888 stream 3 1
0 wait_launched 3
63576 issue 3 2 1 > in_flight=10000000
7948 mark 3
8006 ask 10066329 streams > hold wake_watcher wants=1 kernel_us=2530
15031 look active=1
9116 holding 1
3960 ask 10066329 streams > hold wake_watcher
40412 await_begins
54996 ask 10066329 streams in_stream > admit
0 await_ends
13236 wait_begins 3:1
39409901 await_begins
32710 ask 10066329 streams in_stream > admit
0 await_ends
9975 wait_begins 2:1
257787 look phase=recalled start=10050917869 word=37 beat=20210301 > wake_held mark charged=41130964
113282 tick streams > wake_watcher
1246212 look > mark
21034 tick streams > wake_watcher
58578 ask 10066329 streams > hold wake_watcher
9248 ask 10066329 streams > hold wake_watcher
18816 ask 10066329 streams > hold wake_watcher
2005840 look > mark
26117 tick streams > wake_watcher
1222503 tick streams > wake_watcher
1169658 look > signal hurry charged=5891288 active=0 in_flight=0 drained=0
5026139 tick streams > wake_watcher
19669 look gen=2 phase=open start=1409002 word=52 active=0 > wake_held
10012 tick streams > wake_watcher
73259 ask 10066329 streams > enter active=2
0 enter > admit
569513 wait_launched 3
26375 ask 2500000 streams > admit
20954 issue 3 2 1 > in_flight=2500000
7194 mark 3
10356 ask 10066329 streams > admit
3020676 wait_launched 3
53582 look phase=recalled start=10065646886 word=61 active=1 > signal wake_held hurry active=0 in_flight=0 drained=0
752461 tick streams > wake_watcher
9041 look phase=none word=65 active=0 > wake_held
5314 tick streams > wake_watcher
39014 ask 2500000 streams > hold wake_watcher
11975 ask 2500000 streams > hold wake_watcher
16824788 look phase=prepare word=74 > wake_held
35728 tick streams > wake_watcher
26066 ask 2500000 streams > hold wake_watcher
4591669 look gen=3 phase=slice start=458819 slice=25000000 word=83 > wake_held
21046 tick streams > wake_watcher
18365 ask 2500000 streams > enter active=3
0 enter > admit
6509 holding > wants=0 held_back=78233852
26860 issue 3 2 1 > in_flight=2500000
5880 mark 3 > wake_watcher
44932205 look phase=recalled start=10132953807 slice=0 word=93 beat=2088972 active=1 > signal hurry charged=44938085 active=0 in_flight=0 drained=0
575543 tick streams > wake_watcher
7717 look phase=none word=97 active=0
5082 tick streams > wake_watcher
1000149288 look beat=1619584
22892 tick streams > wake_watcher
1000707764 look beat=729572
27834 tick streams > wake_watcher
386373593 wait_ends 2:1
24227 await_begins
6011 ask 0 streams in_stream returns=2 > hold signal wake_watcher wants=1 kernel_us=4715
867897 look gen=4 phase=open start=269443 word=108 beat=87597756 > wake_held
62199 tick streams > wake_watcher
40008 ask 0 streams in_stream returns=2 > enter active=4
0 enter > admit wake_held wake_watcher in_flight=7500000
0 await_ends > wants=0 held_back=79203956
0 wait_passed 2:1
2209352 await_begins
15887 ask 10066329 streams in_stream > admit
0 await_ends
6171 wait_begins 2:2
47842775 look beat=37602041 active=1
29109 tick streams
9162861 complete 2 2 done=56967116 found=56967116 > charged=2299039 in_flight=5000000
40974708 look
27090 tick streams
50168882 still_runs
41459 look beat=37907605
10537 tick streams
50118949 look
19768 tick streams
50163202 still_runs
39553 look beat=38136495
7007 tick streams
50099440 look
25432 tick streams
50121213 still_runs
21556 look beat=38279524
5884 tick streams
42774274 wait_ends 2:2
19110 await_begins
3946 ask 0 streams in_stream returns=2 > admit
0 await_ends
0 wait_passed 2:2
2139491 await_begins
11519 ask 10066329 streams in_stream > admit
0 await_ends
4350 wait_begins 2:3
5167878 look
22322 tick streams
41158373 complete 2 3 done=46236625 found=41915600 > charged=2290364 in_flight=2500000
9281567 look beat=38747233
29019 tick streams
50124848 still_runs
23294 look
6152 tick streams
50119053 look beat=38813552
24698 tick streams
50115779 still_runs
23547 look
5614 tick streams
50148773 look beat=39016093
21416 tick streams
50158433 still_runs
20802 look
7748 tick streams
34574951 wait_ends 2:3
21059 await_begins
3950 ask 0 streams in_stream returns=2 > admit
0 await_ends
0 wait_passed 2:3
2119049 look beat=25802528
13380869 look
22626 tick streams
30039694 complete 2 4 done=43458453 found=43458453 > charged=2128794 active=0 in_flight=0 drained=43458453
20105385 look active=0
27334 tick streams
217168750 wait_ends 3:1
28119 await_begins
6790 ask 0 streams in_stream returns=3 > enter active=4
0 enter > admit wake_held wake_watcher in_flight=7500000
0 await_ends
0 wait_passed 3:1
94363 look beat=6277856 active=1
1982796 await_begins
14854 ask 10066329 streams in_stream > admit
0 await_ends
3864 wait_begins 3:2
27236083 complete 3 5 done=27198172 found=27102652 > charged=2133788 in_flight=5000000
469842765 wait_ends 3:2
0 wait_passed 3:2
5279621 await_begins
31381 ask 10066329 streams in_stream > admit
0 await_ends
17703 wait_begins 3:3
60036050 complete 3 6 done=59981162 found=59820345 > charged=5383593 in_flight=2500000
219902418 still_runs
20245 look beat=89927057
5931 tick streams
50160659 look beat=39976708
20173 tick streams
50113057 still_runs
13633 look
4894 tick streams
32258252 wait_ends 3:3
0 wait_passed 3:3
17957927 look beat=40249363
33867 tick streams
21915176 complete 3 7 done=37386821 began=39845834 found=37386821 > charged=2459013 active=0 in_flight=0 drained=37386821
2613429 ask 26214 streams > enter active=4
0 enter > admit
194089 kind 3 0.1 65536 16
0 issue 1 3 262144 > in_flight=26214
23844 mark 1
5393 ask 26214 streams > admit
48115 issue 1 3 262144 > in_flight=52428
4885 mark 1
159097 ask 26214 streams > admit
7356 issue 1 3 16 > in_flight=58981
4651 mark 1
175545 complete 1 8 done=369891 found=342894 > charged=58995 in_flight=32767
8733 complete 1 9 done=351135 found=351135 > charged=27489 in_flight=6553
3979 complete 1 10 done=184517 found=184517 > charged=170597 active=0 in_flight=0 drained=184517
6438125 look phase=none start=14508478232 word=121 active=0
33358 tick streams > wake_watcher
6931 look
