# Bytes of the client come late, again and again, while another lease uses the device.
10000000000 look phase=none word=17 beat=2380430 workers=1 share=500000
49215 tick > wake_watcher
16420 look
3376731 ask 52430 > hold signal wake_watcher wants=1 kernel_us=52
52392 look
9885 holding 1
3733 ask 52430 > hold wake_watcher
9407 look
91340 ask 52430 > hold wake_watcher
75369 look
999631 look gen=1 phase=open start=682052 word=28 > wake_held
39073 tick > wake_watcher
7956 look
8432 ask 52430 > enter active=1
0 enter > admit
642883 kind 1 0.1 65536 16
0 stream 1 1 legacy blocking
0 issue 1 1 524304 > in_flight=52430
32449 mark 1
51569 complete 1 1 done=45673 found=45673 > wake_held charged=38345 active=0 in_flight=0 drained=45673
215369 holding > signal wants=0 held_back=2239488
6610873 look phase=none start=10012292727 word=41
0 ask 76688 streams > hold signal wake_watcher wants=1 kernel_us=55
458350 look gen=2 phase=open start=119805 word=52
6076 tick streams
8181 look
8413 holding 1
4012 ask 76688 streams > enter active=2
0 enter > admit
5065 holding > wants=0 held_back=2729585
122350 stream 2 1
0 wait_launched 2
10161 issue 2 1 262144 > in_flight=19172
8021 mark 2
28897 wait_begins 2:1
897581 issue 2 1 262144 > charged=36918 in_flight=38344
17318 mark 2
5912 issue 2 1 262144 > in_flight=57516
4273 mark 2
4245 issue 2 1 262144 > in_flight=76688
5512 mark 2
324883247 still_runs
18614 look phase=recalled start=10338788955 word=61 beat=78471830 active=1 > signal hurry active=0 in_flight=0 drained=0
1342613 tick streams > wake_watcher
14153 look phase=none word=65 active=0
5665 tick streams > wake_watcher
13802 look
1507062 ask 2500000 streams > hold signal wake_watcher wants=1 kernel_us=363
440639 await_begins
51508 ask 2500000 streams > hold wake_watcher
7339 look
22207702 look gen=3 phase=open start=79364 word=76 beat=3988000 > wake_held
44074 tick streams > wake_watcher
11456 ask 2500000 streams > enter active=3
0 enter > admit
6139 await_ends > wants=0 held_back=25498442
17501 kind 2 2500000 1 1000000000000
0 issue 2 2 1 > in_flight=2500000
19966 mark 2
8395 look active=1
12794 issue 2 2 1 > in_flight=5000000
5720 mark 2
6090 issue 2 2 1 > in_flight=7500000
13407 mark 2
14901 issue 2 2 1 > in_flight=10000000
4081 mark 2
4124 ask 2500000 streams > admit
5570 issue 2 2 1 > in_flight=12500000
4160 mark 2
3778 ask 2500000 streams > admit
3684 issue 2 2 1 > in_flight=15000000
4081 mark 2
3685 ask 2500000 streams > admit
6398 issue 2 2 1 > in_flight=17500000
3501 mark 2
3593 ask 2500000 streams > admit
3971 issue 2 2 1 > in_flight=20000000
4327 mark 2
3671 ask 2500000 streams > hold wake_watcher wants=1 kernel_us=1660
10903 look
6676 holding 1
3481 ask 2500000 streams > hold wake_watcher
44948 ask 2500000 streams > hold wake_watcher
17450 ask 2500000 streams > hold wake_watcher
4692559 look phase=recalled start=10369374522 word=85 > signal wake_held hurry active=0 in_flight=0 drained=0
646414 tick streams > wake_watcher
15879 look phase=none word=89 active=0 > wake_held
0 ask 2500000 streams > hold wake_watcher
13256 ask 2500000 streams > hold wake_watcher
75608 look
4607 tick streams > wake_watcher
22990184 look phase=prepare word=98 > wake_held
98407 tick streams > wake_watcher
35614 ask 2500000 streams > hold wake_watcher
4931177 look gen=4 phase=slice start=90126 slice=25000000 word=107 > wake_held
26037 tick streams > wake_watcher
18332 ask 2500000 streams > enter active=4
0 enter > admit
27008 issue 2 2 1 > in_flight=2500000
13693 mark 2 > wake_watcher
5561 ask 2500000 streams > hold signal wake_watcher near_end=4
45111848 look phase=recalled start=10443388147 slice=0 word=117 active=1 > signal wake_held hurry charged=45131102 active=0 near_end=0 in_flight=0 drained=0
670653 tick streams > wake_watcher
8339 look phase=none word=121 active=0 > wake_held
5845 tick streams > wake_watcher
14413 ask 2500000 streams > hold wake_watcher
19507939 look gen=5 phase=open start=79064 word=132 beat=3074857 > wake_held
84975 tick streams > wake_watcher
21640 ask 2500000 streams > enter active=5
0 enter > admit
6928 holding > wants=0 held_back=124608816
15772 issue 2 2 1 > in_flight=2500000
9842 mark 2
4908302 look phase=recalled start=10468642795 word=141 active=1 > signal hurry active=0 in_flight=0 drained=0
730754 tick streams > wake_watcher
16098 look phase=none word=145 active=0
5110 tick streams > wake_watcher
50438373 wait_ends 2:1
28392 await_begins
15536 ask 0 streams in_stream returns=2 > hold signal wake_watcher wants=1 kernel_us=2279
639180 look gen=6 phase=open start=205143 word=156 > wake_held
9219 tick streams > wake_watcher
18645 ask 0 streams in_stream returns=2 > enter active=6
0 enter > admit wake_held wake_watcher in_flight=25076688
0 await_ends > wants=0 held_back=125275860
0 wait_passed 2:1
2126393 complete 2 2 done=1702747 found=1453 > charged=423646 in_flight=25057516
16381 complete 2 3 done=1478603 found=588 > charged=240525 in_flight=25038344
6300 complete 2 4 done=1242611 found=124 > charged=242292 in_flight=25019172
4586 complete 2 5 done=1032613 found=353 > charged=214584 in_flight=25000000
357175 complete 2 6 done=104363 found=732 > charged=1285425 in_flight=22500000
967551 complete 2 7 done=1904 found=1904 > charged=1070010 in_flight=20000000
1458076 look phase=recalled start=10525480564 word=165 active=1 > mark
17190 tick streams > wake_watcher
520377 complete 2 8 done=858106 found=918 > charged=1139441 in_flight=17500000
343205 complete 2 9 done=103453 found=891 > charged=1097858 in_flight=15000000
996004 complete 2 10 done=1186 found=1186 > charged=1098271 in_flight=12500000
1934443 complete 2 11 done=800439 found=2024 > charged=1135190 in_flight=10000000
373546 complete 2 12 done=65458 found=928 > charged=1108527 in_flight=7500000
2012671 complete 2 13 done=941917 found=2031 > charged=1136212 in_flight=5000000
347958 complete 2 14 done=233608 began=1289142 found=642 > charged=1055534 in_flight=2500000
741756 complete 2 15 done=1897 found=1897 > wake_watcher look charged=973467 in_flight=0 drained=1897
0 look > signal active=0
763598 look phase=none word=169 active=0
8527 look
7525 tick streams > wake_watcher
12523 look
217450397 ask 26214 streams > hold signal wake_watcher wants=1 kernel_us=1997
495023 holding 1
5168 look gen=7 phase=open start=93093 word=180 beat=90722275 > wake_held
0 ask 26214 streams > enter active=7
0 enter > admit
12725 holding > wants=0 held_back=125788776
229099 wait_launched 1
30388 look active=1
10370 look
5329 tick streams
19293 await_begins
4404 ask 104857 streams in_stream > admit
0 await_ends
6007 wait_begins 1:1
4550713 wait_ends 1:1
0 wait_passed 1:1
12556748 wait_launched 2
25550 issue 2 1 262144 > in_flight=197821
10003 mark 2
39060 issue 2 1 262144 > in_flight=395642
3926 mark 2
3324 issue 2 1 262144 > in_flight=593463
3249 mark 2
2876 issue 2 1 262144 > in_flight=791284
3025 mark 2
12157 issue 2 2 1 > in_flight=1823474
3557 mark 2
26684 issue 2 2 1 > in_flight=2855664
3775 mark 2
3953 issue 2 2 1 > in_flight=3887854
4635 mark 2
3967 issue 2 2 1 > in_flight=4920044
3048 mark 2
17302 issue 2 2 1 > in_flight=5952234
3567 mark 2
3800 issue 2 2 1 > in_flight=6984424
2981 mark 2
3940 issue 2 2 1 > in_flight=8016614
2947 mark 2
16452 issue 2 2 1 > in_flight=9048804
3445 mark 2
5083 issue 2 2 1 > in_flight=10080994
2848 mark 2
18188 ask 1032190 streams > admit
4071 issue 2 2 1 > in_flight=11113184
3013 mark 2
37227 wait_begins 2:2
1289388 look phase=recalled start=10770502592 word=189 beat=9560097 > mark charged=252103
27830 tick streams > wake_watcher
5118108 look > signal hurry charged=5145938 active=0 in_flight=0 drained=0
422193 tick streams > wake_watcher
11792 look phase=none word=193 active=0
4836 tick streams > wake_watcher
511459728 wait_ends 2:2
20181 await_begins
11962 ask 0 streams in_stream returns=2 > hold signal wake_watcher wants=1 kernel_us=1661
632089 look gen=8 phase=open start=75032 word=204 beat=26654727 > wake_held
46895 tick streams > wake_watcher
18557 ask 0 streams in_stream returns=2 > enter active=8
0 enter > admit wake_held wake_watcher in_flight=11113184
0 await_ends > wants=0 held_back=126486317
0 wait_passed 2:2
202529 complete 2 16 done=6688 found=1192 > charged=195841 in_flight=10915363
15928 complete 2 17 done=912 found=912 > charged=21704 in_flight=10717542
6023 complete 2 18 done=189 found=189 > charged=6746 in_flight=10519721
409479 complete 2 19 done=278960 found=1133 > charged=130708 in_flight=10321900
958282 complete 2 20 done=200764 found=937 > charged=1036478 in_flight=9289710
972489 complete 2 21 done=105886 found=1724 > charged=1067367 in_flight=8257520
970184 complete 2 22 done=5468 found=910 > charged=1070602 in_flight=7225330
995201 complete 2 23 done=1583 found=1583 > charged=999086 in_flight=6193140
519113 look phase=recalled start=11293325991 word=213 active=1 > mark
13803 tick streams > wake_watcher
584428 complete 2 24 done=897 found=897 > charged=1118030 in_flight=5160950
1002300 complete 2 25 done=1813 found=1813 > charged=1001384 in_flight=4128760
2120160 complete 2 26 done=995872 found=854 > charged=1126101 in_flight=3096570
21328 complete 2 27 done=473 found=473 > charged=1016727 in_flight=2064380
2070235 complete 2 28 done=981090 found=692 > charged=1089618 in_flight=1032190
16816 complete 2 29 done=20209 found=20209 > wake_watcher look charged=977697 in_flight=0 drained=20209
0 look > signal active=0
32271 look active=0
708171 look phase=none word=217
43167 tick streams > wake_watcher
11607 look
215731859 ask 26214 streams > hold signal wake_watcher wants=1 kernel_us=1456
56089 holding 1
3861 ask 26214 streams > hold wake_watcher
17810 ask 26214 streams > hold wake_watcher
11166 look beat=53941566
519418 look gen=9 phase=open start=82461 word=228 > wake_held
43864 tick streams > wake_watcher
8549 look
16115 ask 26214 streams > enter active=9
0 enter > admit
6333 holding > wants=0 held_back=127169522
71252 wait_launched 1
70170 await_begins
4306 ask 104857 streams in_stream > admit
0 await_ends
5786 wait_begins 1:2
364108 wait_ends 1:2
0 wait_passed 1:2
5494034 wait_launched 2
26059 issue 2 1 262144 > in_flight=103797
10190 mark 2
22031 wait_begins 2:3
21226 issue 2 1 262144 > charged=32221 in_flight=207594
7030 mark 2
5228 issue 2 1 262144 > in_flight=311391
4829 mark 2
4541 issue 2 1 262144 > in_flight=415188
5291 mark 2
1428315 issue 2 2 1 > in_flight=1438768
23314 mark 2
63600 issue 2 2 1 > in_flight=2462348
7452 mark 2
44689 issue 2 2 1 > in_flight=3485928
5806 mark 2
39206 issue 2 2 1 > in_flight=4509508
5183 mark 2
40086 issue 2 2 1 > in_flight=5533088
5554 mark 2
555382 issue 2 2 1 > in_flight=6556668
11137 mark 2
51853 issue 2 2 1 > in_flight=7580248
5244 mark 2
40340 issue 2 2 1 > in_flight=8603828
4784 mark 2
38506 issue 2 2 1 > in_flight=9627408
5602 mark 2
37874 issue 2 2 1 > in_flight=10650988
5853 mark 2
529846 look phase=recalled start=11525431048 word=237 active=1 > mark
17976 tick streams > wake_watcher
5147893 look > signal hurry charged=5165869 active=0 in_flight=0 drained=0
466919 tick streams > wake_watcher
20497 look phase=none word=241 active=0
5546 tick streams > wake_watcher
530214869 wait_ends 2:3
22993 await_begins
5977 ask 0 streams in_stream returns=2 > hold signal wake_watcher wants=1 kernel_us=984
571589 look gen=10 phase=open start=164204 word=252 beat=99482121 > wake_held
9568 tick streams > wake_watcher
9976 ask 0 streams in_stream returns=2 > enter active=10
0 enter > admit wake_held wake_watcher in_flight=10650988
0 await_ends > wants=0 held_back=127760655
0 wait_passed 2:3
1150374 complete 2 30 done=957158 found=1592 > charged=193216 in_flight=10547191
29151 complete 2 31 done=941934 found=6469 > charged=44375 in_flight=10443394
6513 complete 2 32 done=903474 found=319 > charged=44973 in_flight=10339597
5617 complete 2 33 done=868985 found=529 > charged=40106 in_flight=10235800
353718 complete 2 34 done=165202 found=563 > charged=1057501 in_flight=9212220
892001 complete 2 35 done=43731 found=2059 > charged=1013472 in_flight=8188640
1953099 complete 2 36 done=938433 found=1300 > charged=1058397 in_flight=7165060
20956 complete 2 37 done=1007 found=1007 > charged=958382 in_flight=6141480
550782 look phase=recalled start=12066887062 word=261 beat=4389372 active=1 > mark
14134 tick streams > wake_watcher
559152 complete 2 38 done=1101 found=1101 > charged=1123974 in_flight=5117900
1030834 complete 2 39 done=1759 found=1759 > charged=1030176 in_flight=4094320
2077046 complete 2 40 done=864907 found=1037 > charged=1213898 in_flight=3070740
351005 complete 2 41 done=196811 found=1291 > charged=1019101 in_flight=2047160
1002537 complete 2 42 done=130319 found=1058 > charged=1069029 in_flight=1023580
806934 complete 2 43 done=2115 found=2115 > wake_watcher look charged=935138 in_flight=0 drained=2115
0 look > signal active=0
428681 look phase=none word=265 active=0
7980 tick streams > wake_watcher
18804 look
219028477 ask 26214 streams > hold signal wake_watcher wants=1 kernel_us=864
647475 look gen=11 phase=open start=196619 word=276 beat=30068153
8168 tick streams
13015 holding 1
5597 ask 26214 streams > enter active=11
0 enter > admit
6272 holding > wants=0 held_back=128441182
101974 wait_launched 1
22883 look active=1
18548 await_begins
4530 ask 104857 streams in_stream > admit
0 await_ends
7090 wait_begins 1:3
884891 wait_ends 1:3
0 wait_passed 1:3
10105019 kind 3 0.1 65536 16
0 issue 1 3 262144 > in_flight=26214
33425 mark 1
13343 ask 26214 streams > admit
44079 issue 1 3 262144 > in_flight=52428
3609 mark 1
106639 complete 1 44 done=127651 found=103119 > charged=73444 in_flight=26214
10049 complete 1 45 done=112812 found=112812 > charged=24888 active=0 in_flight=0 drained=112812
96290 ask 45903 streams > enter active=11
0 enter > admit
21818 issue 1 3 16 > in_flight=11475
4233 mark 1
241021 complete 1 46 done=228702 found=228702 > charged=16552 active=0 in_flight=0 drained=228702
1139726 look phase=none start=12305752340 word=289 active=0
31812 tick streams > wake_watcher
8380 look
