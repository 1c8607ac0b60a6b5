# 64 streams of one program get small pieces of work, beside another lease.
10000000000 look phase=none word=17 beat=3162162 workers=1 share=500000
42284 tick > wake_watcher
17166 look
3163067 ask 52430 > hold signal wake_watcher wants=1 kernel_us=52
527736 look gen=1 phase=open start=122491 word=28
10268 look
4812 tick
11059 holding 1
4328 ask 52430 > enter active=1
0 enter > admit
5288 holding > wants=0 held_back=563491
498926 kind 1 0.1 65536 16
0 stream 1 1 legacy blocking
0 issue 1 1 524304 > in_flight=52430
25876 mark 1
17540 complete 1 1 done=12058 found=12058 > charged=31358 active=0 in_flight=0 drained=12058
342354249 ask 2500000 streams > enter active=1
0 enter > admit
123695 kind 2 2500000 1 1000000000000
0 stream 2-65 1
0 issue 2 2 1 > in_flight=2500000
24202 mark 2
241376 issue 3 2 1 > in_flight=5000000
10367 mark 3
218661 issue 4 2 1 > in_flight=7500000
10541 mark 4
198290 issue 5 2 1 > in_flight=10000000
8688 mark 5
4877 ask 2500000 streams > admit
269235 issue 6 2 1 > in_flight=12500000
177420 mark 6
92715 ask 2500000 streams > admit
230743 issue 7 2 1 > in_flight=15000000
8839 mark 7
536274 ask 2500000 streams > admit
63559 issue 8 2 1 > in_flight=17500000
8013 mark 8
4270 ask 2500000 streams > admit
347760 issue 9 2 1 > in_flight=20000000
9949 mark 9
4600 ask 2500000 streams > hold wake_watcher wants=1 kernel_us=1401
171244 holding 1
4208 ask 2500000 streams > hold wake_watcher
4913 ask 2500000 streams > hold wake_watcher
223858 ask 2500000 streams > hold wake_watcher
126634 complete 2 2 done=543576 found=1411 > charged=2457660 in_flight=17500000
9986 complete 3 3 done=388126 found=232 > charged=165436 in_flight=15000000
161811 complete 4 4 done=374 found=374 > charged=549563 in_flight=12500000
5753 complete 5 5 done=189968 found=276 > in_flight=10000000
49595 ask 1042800 streams > admit
152175 issue 10 2 1 > in_flight=11042800
8332 mark 10
4745 ask 1042800 streams > admit
479042 issue 11 2 1 > in_flight=12085600
16887 mark 11
10794 complete 6 6 done=336648 found=634 > wake_held charged=391049 in_flight=9585600
127482 ask 716924 streams > admit
139133 issue 12 2 1 > in_flight=10302524
5818 ask 716924 streams > admit
331632 issue 13 2 1 > in_flight=11019448
10534 complete 8 8 done=44478 found=44478 > wake_held charged=906769 in_flight=8519448
78202 ask 811847 streams > admit
207663 issue 14 2 1 > in_flight=9331295
6455 ask 811847 streams > admit
198404 issue 15 2 1 > in_flight=10143142
6370 ask 811847 streams > admit
292701 issue 16 2 1 > in_flight=10954989
11881 complete 7 7 done=530927 found=529 > wake_held charged=315227 in_flight=8454989
8429 complete 9 9 done=10985 found=214 > wake_held charged=528371 in_flight=5954989
157536 ask 545954 streams > admit
46879 issue 17 2 1 > in_flight=6500943
5923 ask 545954 streams > admit
417657 issue 18 2 1 > in_flight=7046897
148042 complete 10 10 done=198803 found=613 > wake_held charged=588219 in_flight=6004097
100421 complete 11 11 done=233 found=233 > wake_held charged=298991 in_flight=4961297
27159 look beat=84506856 active=1
13814 ask 433039 streams > admit
208793 issue 19 2 1 > in_flight=5394336
7247 ask 433039 streams > admit
165842 issue 20 2 1 > in_flight=5827375
127007 ask 433039 streams > admit
55109 issue 21 2 1 > in_flight=6260414
5430 ask 433039 streams > admit
403032 issue 22 2 1 > in_flight=6693453
120603 ask 433039 streams > admit
169653 issue 23 2 1 > in_flight=7126492
6386 ask 433039 streams > admit
148795 issue 24 2 1 > in_flight=7559531
11139 ask 433039 streams > admit
149842 issue 25 2 1 > in_flight=7992570
5944 ask 433039 streams > admit
164390 issue 26 2 1 > in_flight=8425609
6980 ask 433039 streams > admit
215635 issue 27 2 1 > in_flight=8858648
46805 ask 433039 streams > admit
173921 issue 28 2 1 > in_flight=9291687
155887 ask 433039 streams > admit
64498 issue 29 2 1 > in_flight=9724726
148036 ask 433039 streams > admit
406849 issue 30 2 1 > in_flight=10157765
10089 ask 433039 streams > admit
186010 issue 31 2 1 > in_flight=10590804
7372 ask 433039 streams > admit
140376 issue 32 2 1 > in_flight=11023843
6313 ask 433039 streams > admit
200450 issue 33 2 1 > in_flight=11456882
6388 ask 433039 streams > admit
329138 issue 34 2 1 > in_flight=11889921
7992 ask 433039 streams > admit
69834 issue 35 2 1 > in_flight=12322960
41345 ask 433039 streams > admit
159903 issue 36 2 1 > in_flight=12755999
6240 ask 433039 streams > admit
515536 issue 37 2 1 > in_flight=13189038
19018 ask 433039 streams > admit
274792 issue 38 2 1 > in_flight=13622077
7501 ask 433039 streams > admit
358591 issue 39 2 1 > in_flight=14055116
7390 ask 433039 streams > admit
494755 issue 40 2 1 > in_flight=14488155
15995 ask 433039 streams > admit
467543 issue 41 2 1 > in_flight=14921194
10364 ask 433039 streams > admit
150855 issue 42 2 1 > in_flight=15354233
15927 ask 433039 streams > admit
153436 issue 43 2 1 > in_flight=15787272
7406 ask 433039 streams > admit
198839 issue 44 2 1 > in_flight=16220311
24089 ask 433039 streams > admit
184213 issue 45 2 1 > in_flight=16653350
6600 ask 433039 streams > admit
180375 issue 46 2 1 > in_flight=17086389
6120 ask 433039 streams > admit
228672 issue 47 2 1 > in_flight=17519428
240742 ask 433039 streams > admit
4118 holding > wants=0 held_back=12047753
166075 issue 48 2 1 > in_flight=17952467
9207 ask 433039 streams > admit
155111 issue 49 2 1 > in_flight=18385506
7210 ask 433039 streams > admit
192904 issue 50 2 1 > in_flight=18818545
7521 ask 433039 streams > admit
223097 issue 51 2 1 > in_flight=19251584
144280 ask 433039 streams > admit
177491 issue 52 2 1 > in_flight=19684623
7126 ask 433039 streams > hold wake_watcher wants=1 kernel_us=438
15272 look
9109 holding 1
3571 ask 433039 streams > hold wake_watcher
10386 look
6754 ask 433039 streams > hold wake_watcher
129881 look
11157 ask 433039 streams > hold wake_watcher
5885 ask 433039 streams > hold wake_watcher
38124 ask 433039 streams > hold wake_watcher
148936 look
7004 ask 433039 streams > hold wake_watcher
9489 look
6253 ask 433039 streams > hold wake_watcher
55832 look
57422 ask 433039 streams > hold wake_watcher
9729 look
5601 ask 433039 streams > hold wake_watcher
9226 look
280204 ask 433039 streams > hold wake_watcher
6141 ask 433039 streams > hold wake_watcher
14273 ask 433039 streams > hold wake_watcher
45994 look
6619 ask 433039 streams > hold wake_watcher
9057 look
6252 ask 433039 streams > hold wake_watcher
53241 look
6093 ask 433039 streams > hold wake_watcher
46799 look
16975 mark 12
11283 mark 13
121450 mark 14
4769 mark 15
4640 mark 16
175798 mark 17
6193 mark 18
4563 mark 19
11622 mark 20
4895 mark 21
4596 mark 22
3967 mark 23
4604 mark 24
4268 mark 25
4602 mark 26
4572 mark 27
4388 mark 28
4906 mark 29
5340 mark 30
118290 mark 31
4952 mark 32
4526 mark 33
4316 mark 34
4618 mark 35
4058 mark 36
4374 mark 37
3899 mark 38
3895 mark 39
3746 mark 40
7606 mark 41
185221 mark 42
5916 mark 43
4652 mark 44
4605 mark 45
5069 mark 46
3897 mark 47
4196 mark 48
3779 mark 49
3833 mark 50
5073 mark 51
9288 mark 52
31367 ask 433039 streams > hold wake_watcher
43025 complete 12 12 done=845199 found=1126 > charged=9890115 in_flight=18967699
8987 complete 13 13 done=841924 found=90 > charged=12262 in_flight=18250775
4774 complete 14 14 done=725297 found=61 > charged=121401 in_flight=17438928
4832 complete 15 15 done=725293 found=202 > charged=4836 in_flight=16627081
4193 complete 16 16 done=724951 found=311 > charged=4535 in_flight=15815234
4383 complete 17 17 done=553485 found=90 > charged=175849 in_flight=15269280
4196 complete 18 18 done=551415 found=172 > charged=6266 in_flight=14723326
3827 complete 19 19 done=550696 found=74 > charged=4546 in_flight=14290287
4373 complete 20 20 done=543449 found=211 > charged=11620 in_flight=13857248
5374 complete 21 21 done=543960 found=90 > charged=4863 in_flight=13424209
3739 complete 22 22 done=543065 found=85 > charged=4634 in_flight=12991170
4277 complete 23 23 done=543394 found=198 > charged=3948 in_flight=12558131
3818 complete 24 24 done=542601 found=211 > charged=4611 in_flight=12125092
4394 complete 25 25 done=542690 found=75 > charged=4305 in_flight=11692053
4121 complete 26 26 done=542192 found=64 > charged=4619 in_flight=11259014
4207 complete 27 27 done=541864 found=202 > charged=4535 in_flight=10825975
3931 complete 28 28 done=541280 found=205 > charged=4515 in_flight=10392936
4774 complete 29 29 done=541153 found=86 > wake_held charged=4901 in_flight=9959897
6956 complete 30 30 done=542766 found=88 > wake_held charged=5343 in_flight=9526858
4253 complete 31 31 done=428925 found=72 > wake_held charged=118094 in_flight=9093819
4574 complete 32 32 done=428470 found=81 > wake_held charged=5029 in_flight=8660780
3906 complete 33 33 done=428007 found=75 > wake_held charged=4369 in_flight=8227741
4331 complete 34 34 done=427885 found=80 > wake_held charged=4453 in_flight=7794702
3722 complete 35 35 done=426821 found=77 > wake_held charged=4786 in_flight=7361663
4488 complete 36 36 done=427386 found=77 > wake_held charged=3923 in_flight=6928624
4195 complete 37 37 done=427092 found=76 > wake_held charged=4489 in_flight=6495585
4004 complete 38 38 done=427184 found=81 > wake_held charged=3912 in_flight=6062546
4023 complete 39 39 done=427313 found=72 > wake_held charged=3894 in_flight=5629507
3974 complete 40 40 done=427532 found=78 > wake_held charged=3755 in_flight=5196468
4214 complete 41 41 done=424135 found=71 > wake_held charged=7611 in_flight=4763429
4067 complete 42 42 done=243114 found=88 > wake_held charged=185088 in_flight=4330390
4493 complete 43 43 done=241575 found=83 > wake_held charged=6032 in_flight=3897351
4429 complete 44 44 done=241501 found=192 > wake_held charged=4503 in_flight=3464312
4910 complete 45 45 done=241718 found=92 > wake_held charged=4693 in_flight=3031273
4751 complete 46 46 done=241341 found=118 > wake_held charged=5128 in_flight=2598234
3963 complete 47 47 done=241370 found=93 > wake_held charged=3934 in_flight=2165195
4063 complete 48 48 done=241267 found=76 > wake_held charged=4166 in_flight=1732156
3978 complete 49 49 done=241456 found=75 > wake_held charged=3789 in_flight=1299117
4203 complete 50 50 done=241807 found=81 > wake_held charged=3852 in_flight=866078
10016 complete 51 51 done=170729 found=105 > wake_held charged=81094 in_flight=433039
18537 ask 9971 streams > admit
179435 issue 53 2 1 > in_flight=443010
12987 complete 52 52 done=11171 found=341 > wake_held charged=370517 in_flight=9971
12570 look
8735 ask 24929 streams > admit
55248 issue 54 2 1 > in_flight=34900
5081 ask 24929 streams > admit
167687 issue 55 2 1 > in_flight=59829
13353 ask 24929 streams > admit
116147 issue 56 2 1 > in_flight=84758
6229 ask 24929 streams > admit
306029 issue 57 2 1 > in_flight=109687
7631 ask 24929 streams > admit
47362 issue 58 2 1 > in_flight=134616
5234 ask 24929 streams > admit
305808 issue 59 2 1 > in_flight=159545
22359 ask 24929 streams > admit
209845 issue 60 2 1 > in_flight=184474
5921 ask 24929 streams > admit
123160 issue 61 2 1 > in_flight=209403
6822 ask 24929 streams > admit
505533 issue 62 2 1 > in_flight=234332
8072 ask 24929 streams > admit
592720 issue 63 2 1 > in_flight=259261
167770 ask 24929 streams > admit
216882 issue 64 2 1 > in_flight=284190
113571 ask 24929 streams > admit
83909 issue 65 2 1 > in_flight=309119
67864 ask 24929 streams > admit
146389 issue 2 2 1 > in_flight=334048
5337 ask 24929 streams > admit
130076 issue 3 2 1 > in_flight=358977
4906 ask 24929 streams > admit
273731 issue 4 2 1 > in_flight=383906
5166 ask 24929 streams > admit
28954 issue 5 2 1 > in_flight=408835
4444 ask 24929 streams > admit
230394 issue 6 2 1 > in_flight=433764
133041 ask 24929 streams > admit
1473244 issue 7 2 1 > in_flight=458693
18219 ask 24929 streams > admit
15791 issue 8 2 1 > in_flight=483622
3957 ask 24929 streams > admit
169734 issue 9 2 1 > in_flight=508551
127313 ask 24929 streams > admit
176921 issue 10 2 1 > in_flight=533480
6081 ask 24929 streams > admit
25194 issue 11 2 1 > in_flight=558409
3666 ask 24929 streams > admit
143763 issue 12 2 1 > in_flight=583338
14300 ask 24929 streams > admit
7237 holding > wants=0 held_back=20659761
214766 issue 13 2 1 > in_flight=608267
2898030 issue 14 2 1 > in_flight=633196
33418 issue 15 2 1 > in_flight=658125
153037 issue 16 2 1 > in_flight=683054
59749 issue 17 2 1 > in_flight=707983
163286 issue 18 2 1 > in_flight=732912
12193 issue 19 2 1 > in_flight=757841
8060 issue 20 2 1 > in_flight=782770
7956 issue 21 2 1 > in_flight=807699
8453 issue 22 2 1 > in_flight=832628
7602 issue 23 2 1 > in_flight=857557
8544 issue 24 2 1 > in_flight=882486
7864 issue 25 2 1 > in_flight=907415
7754 issue 26 2 1 > in_flight=932344
63557 issue 27 2 1 > in_flight=957273
8844 issue 28 2 1 > in_flight=982202
8073 issue 29 2 1 > in_flight=1007131
7264 issue 30 2 1 > in_flight=1032060
7756 issue 31 2 1 > in_flight=1056989
7179 issue 32 2 1 > in_flight=1081918
7361 issue 33 2 1 > in_flight=1106847
8027 issue 34 2 1 > in_flight=1131776
7620 issue 35 2 1 > in_flight=1156705
8171 issue 36 2 1 > in_flight=1181634
8168 issue 37 2 1 > in_flight=1206563
7545 issue 38 2 1 > in_flight=1231492
8109 issue 39 2 1 > in_flight=1256421
7155 issue 40 2 1 > in_flight=1281350
7592 issue 41 2 1 > in_flight=1306279
7562 issue 42 2 1 > in_flight=1331208
7078 issue 43 2 1 > in_flight=1356137
7999 issue 44 2 1 > in_flight=1381066
7398 issue 45 2 1 > in_flight=1405995
7402 issue 46 2 1 > in_flight=1430924
7564 issue 47 2 1 > in_flight=1455853
8541 issue 48 2 1 > in_flight=1480782
4944124 issue 49 2 1 > in_flight=1505711
302106 issue 50 2 1 > in_flight=1530640
151628 issue 51 2 1 > in_flight=1555569
31084 issue 52 2 1 > in_flight=1580498
9163 issue 53 2 1 > in_flight=1605427
