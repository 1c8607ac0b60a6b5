# The token loop falls silent: the lease limits itself to its share, until the loop is back.
10000000000 look phase=none word=9 beat=73485473 workers=1 share=300000
31161 tick > wake_watcher
11811 look
602326609 ask 52430 > hold signal wake_watcher wants=1 kernel_us=52
39713 look
15560 holding 1
4184 ask 52430 > hold wake_watcher
9756 look
132507 ask 52430 > hold wake_watcher
11133 look
114010840 look word=17 beat=158842 > wake_held
62151 tick > wake_watcher
9582 look
19372 ask 52430 > hold wake_watcher
16612 look
2959932 look gen=1 phase=open start=2710805 word=28 > wake_held
58086 tick > wake_watcher
8587 ask 52430 > enter active=1
0 enter > admit
16821 look active=1 > wake_held
822178 kind 1 0.1 65536 16
0 stream 1 1 legacy blocking
0 issue 1 1 524304 > in_flight=52430
27826 mark 1
39333 holding > wants=0 held_back=118264173
7596 complete 1 1 done=10737 found=10737 > charged=64018 active=0 in_flight=0 drained=10737
49216032 look active=0
26607 tick
10604571 look phase=recalled start=10780488560 word=37
18871 tick > wake_watcher
12939 look
59826 look phase=none word=41
8449 tick > wake_watcher
5536 look
143525327 ask 2500000 > hold signal wake_watcher wants=1 kernel_us=358
595063 look gen=2 phase=open start=138699 word=52 beat=13049428
7042 tick
8757 holding 1
5065 ask 2500000 > enter active=2
0 enter > admit
5887 holding > wants=0 held_back=118885987
97040 kind 2 2500000 1 1000000000000
0 issue 1 2 1 > in_flight=2500000
21426 mark 1
14031 look active=1
336164 issue 1 2 1 > in_flight=5000000
7286 mark 1
5076 issue 1 2 1 > in_flight=7500000
4127 mark 1
6865 issue 1 2 1 > in_flight=10000000
4315 mark 1
3616 ask 2500000 > admit
4408 issue 1 2 1 > in_flight=12500000
3900 mark 1
3400 ask 2500000 > admit
3793 issue 1 2 1 > in_flight=15000000
3780 mark 1
3123 ask 2500000 > admit
3690 issue 1 2 1 > in_flight=17500000
3828 mark 1
12053 ask 2500000 > admit
6372 issue 1 2 1 > in_flight=20000000
4057 mark 1
3260 ask 2500000 > hold wake_watcher wants=1 kernel_us=1538
31140 look
7153 holding 1
3422 ask 2500000 > hold wake_watcher
45485 ask 2500000 > hold wake_watcher
2556811 ask 2500000 > hold wake_watcher
1741739 complete 1 2 done=2112189 found=1217 > charged=2732131 in_flight=17500000
9830 complete 1 3 done=249 found=249 > charged=2121770 in_flight=15000000
50987 ask 2426950 > admit
6986 issue 1 2 1 > in_flight=17426950
4754 mark 1
4384 ask 2426950 > admit
55373 issue 1 2 1 > in_flight=19853900
4046 mark 1
3276 ask 2426950 > hold wake_watcher
3474 ask 2426950 > hold wake_watcher
3009118 ask 2426950 > hold wake_watcher
914685 complete 1 4 done=1019999 found=503 > charged=3037333 in_flight=17353900
1992180 complete 1 5 done=917345 found=276 > charged=2094834 in_flight=14853900
1007244 look phase=recalled start=10936749019 word=61 > wake_held mark
14015 tick > wake_watcher
29878 ask 2413488 > hold wake_watcher
18520 complete 1 6 done=1146 found=1146 > wake_held charged=1985856 in_flight=12353900
36864 ask 2199672 > hold wake_watcher
1001013 look > mark
4684 tick > wake_watcher
1643197 tick > wake_watcher
596733 complete 1 7 done=555715 found=695 > wake_held charged=2727922 in_flight=9853900
38809 ask 2463797 > hold wake_watcher
403525 look > mark
5004 tick > wake_watcher
1067399 tick > wake_watcher
543457 complete 1 8 done=503168 found=703 > wake_held charged=2110741 in_flight=7353900
44929 ask 2287269 > hold wake_watcher
525328 look > mark
4959 tick > wake_watcher
1136606 tick > wake_watcher
229260 complete 1 9 done=352046 found=342 > wake_held charged=2092204 in_flight=4853900
15784 ask 2189736 > hold wake_watcher
913976 look > mark
5015 tick > wake_watcher
1121940 complete 1 10 done=393687 found=838 > wake_held charged=2015074 in_flight=2426950
38509 ask 2102405 > hold wake_watcher
8463 look > mark
4072 tick > wake_watcher
1100883 tick > wake_watcher
544188 complete 1 11 done=1157 found=1157 > wake_held wake_watcher look charged=2088645 in_flight=0 drained=1157
0 look > signal active=0
444057 look phase=none word=65 active=0 > wake_held
24169 look
5186 tick > wake_watcher
9785 ask 2095525 > hold wake_watcher
7001 look
43887972 look phase=prepare word=74 > wake_held
41122 tick > wake_watcher
8755 ask 2095525 > hold wake_watcher
11758 look
1524840 look gen=3 phase=slice start=60789 slice=5032009 word=83 > wake_held
20445 tick > wake_watcher
6878 ask 2095525 > enter active=3
0 enter > admit
60444 issue 1 2 1 > in_flight=2095525
8634 mark 1 > wake_watcher
14309 ask 2095525 > admit
4749 issue 1 2 1 > in_flight=4191050
4906 mark 1 > wake_watcher
3409 ask 2095525 > hold signal wake_watcher near_end=3
2096023 complete 1 12 done=2075 found=2075 > wake_held charged=2129955 in_flight=2095525
56843 ask 2112740 > hold wake_watcher
1999755 complete 1 13 done=2105 found=2105 > wake_held wake_watcher look charged=2056568 in_flight=0 drained=2105
0 look active=1 > signal active=0 spent=3
460201 look phase=none start=10998547270 slice=0 word=97 active=0 > wake_held
6505 tick > wake_watcher
11144 ask 2084654 > hold wake_watcher
12713 look
14668736 look phase=prepare word=106 beat=1512127 > wake_held
62723 tick > wake_watcher
89272 ask 2084654 > hold wake_watcher
7276 look
4238520 look gen=4 phase=slice start=70926 slice=7516004 word=115 > wake_held
65382 tick > wake_watcher
17237 ask 2084654 > enter active=4 near_end=0 spent=0
0 enter > admit
20070 issue 1 2 1 > in_flight=2084654
9721 mark 1 > wake_watcher
5243 ask 2084654 > admit
4510 issue 1 2 1 > in_flight=4169308
4536 mark 1 > wake_watcher
3661 ask 2084654 > hold wake_watcher
2056787 complete 1 14 done=3428 found=2401 > wake_held charged=2081030 in_flight=2084654
49719 ask 2082842 > admit
9991 issue 1 2 1 > in_flight=4167496
6137 mark 1 > wake_watcher
4770 ask 2082842 > hold signal wake_watcher near_end=4
3996688 complete 1 15 done=2020255 found=659 > wake_held charged=2050478 in_flight=2082842
29437 complete 1 16 done=35359 found=32281 > wake_held wake_watcher look charged=2014333 in_flight=0 drained=35359
0 look active=1 > signal active=0 spent=4
448140 look phase=none start=11024376188 slice=0 word=129 active=0 > wake_held
0 ask 2040497 > hold wake_watcher
18668 look
70132 look
5087 tick > wake_watcher
9729 ask 2040497 > hold wake_watcher
6136 look
12886329 look phase=prepare word=138 > wake_held
34649 tick > wake_watcher
7292 ask 2040497 > hold wake_watcher
17958 look
4183617 look gen=5 phase=slice start=69660 slice=16258002 word=147 > wake_held
27368 tick > wake_watcher
10951 ask 2040497 > enter active=5 near_end=0 spent=0
0 enter > admit
63068 issue 1 2 1 > in_flight=2040497
10374 mark 1 > wake_watcher
12503 ask 2040497 > admit
5027 issue 1 2 1 > in_flight=4080994
4263 mark 1 > wake_watcher
3814 ask 2040497 > hold wake_watcher
2038054 complete 1 17 done=2026 found=2026 > wake_held charged=2072009 in_flight=2040497
51222 ask 2056253 > admit
9391 issue 1 2 1 > in_flight=4096750
6996 mark 1 > wake_watcher
4750 ask 2056253 > hold wake_watcher
2039498 complete 1 18 done=2157 found=2157 > wake_held charged=2111726 in_flight=2056253
54105 ask 2083989 > admit
9970 issue 1 2 1 > in_flight=4140242
5778 mark 1 > wake_watcher
17605 ask 2083989 > hold wake_watcher
2011545 complete 1 19 done=13177 found=1718 > wake_held charged=2087983 in_flight=2083989
30587 ask 2085986 > admit
9597 issue 1 2 1 > in_flight=4169975
7107 mark 1 > wake_watcher
4581 ask 2085986 > hold wake_watcher
2067652 complete 1 20 done=1785 found=1785 > wake_held charged=2130916 in_flight=2085986
48896 ask 2108451 > admit
9527 issue 1 2 1 > in_flight=4194437
5673 mark 1 > wake_watcher
4581 ask 2108451 > hold wake_watcher
1986211 complete 1 21 done=15758 found=1532 > wake_held charged=2040915 in_flight=2108451
30133 ask 2074683 > admit
9214 issue 1 2 1 > in_flight=4183134
5618 mark 1 > wake_watcher
4355 ask 2074683 > hold wake_watcher
1959124 complete 1 22 done=2462 found=1986 > wake_held charged=2021740 in_flight=2074683
53411 ask 2048212 > admit
9051 issue 1 2 1 > in_flight=4122895
5980 mark 1 > wake_watcher
4728 ask 2048212 > hold signal wake_watcher near_end=5
2101112 complete 1 23 done=16962 found=1655 > wake_held charged=2159782 in_flight=2048212
32402 ask 2103997 > hold wake_watcher
1976515 complete 1 24 done=4019 found=1961 > wake_held wake_watcher look charged=2021860 in_flight=0 drained=4019
0 look active=1 > signal active=0 spent=5
471959 look phase=none start=11058840081 slice=0 word=161 active=0 > wake_held
0 ask 2062928 > hold wake_watcher
77005 ask 2062928 > hold wake_watcher
6638 look
6940 look
14755 look
40012171 look phase=prepare word=170 > wake_held
38743 tick > wake_watcher
12434 ask 2062928 > hold wake_watcher
48286 look
3978733 look gen=6 phase=slice start=79698 slice=20629001 word=179 > wake_held
35009 tick > wake_watcher
12344 look
10040 ask 2062928 > enter active=6 near_end=0 spent=0
0 enter > admit
63318 issue 1 2 1 > in_flight=2062928
10203 mark 1 > wake_watcher
7354 ask 2062928 > admit
5483 issue 1 2 1 > in_flight=4125856
4724 mark 1 > wake_watcher
4473 ask 2062928 > hold wake_watcher
2033638 complete 1 25 done=2333 found=2333 > wake_held charged=2063542 in_flight=2062928
63412 ask 2063235 > admit
10964 issue 1 2 1 > in_flight=4126163
15649 mark 1 > wake_watcher
4896 ask 2063235 > hold wake_watcher
2011834 complete 1 26 done=2793 found=2793 > wake_held charged=2106295 in_flight=2063235
44288 ask 2084765 > admit
9599 issue 1 2 1 > in_flight=4148000
5677 mark 1 > wake_watcher
4922 ask 2084765 > hold wake_watcher
2058448 complete 1 27 done=14106 found=1561 > wake_held charged=2111621 in_flight=2084765
32283 ask 2098193 > admit
8586 issue 1 2 1 > in_flight=4182958
7061 mark 1 > wake_watcher
5504 ask 2098193 > hold wake_watcher
2026547 complete 1 28 done=16331 found=2324 > wake_held charged=2077756 in_flight=2098193
33819 ask 2087975 > admit
10373 issue 1 2 1 > in_flight=4186168
6472 mark 1 > wake_watcher
4858 ask 2087975 > hold wake_watcher
2063133 complete 1 29 done=1831 found=1831 > wake_held charged=2133155 in_flight=2087975
61309 ask 2110565 > admit
10184 issue 1 2 1 > in_flight=4198540
7134 mark 1 > wake_watcher
4408 ask 2110565 > hold wake_watcher
2061894 complete 1 30 done=15838 found=2258 > wake_held charged=2130922 in_flight=2110565
30029 ask 2120743 > admit
11425 issue 1 2 1 > in_flight=4231308
6107 mark 1 > wake_watcher
6309 ask 2120743 > hold wake_watcher
2016239 complete 1 31 done=1517 found=1517 > wake_held charged=2084430 in_flight=2120743
50909 ask 2102587 > admit
9769 issue 1 2 1 > in_flight=4223330
6139 mark 1 > wake_watcher
4610 ask 2102587 > hold wake_watcher
2006078 complete 1 32 done=20859 found=1976 > wake_held charged=2058163 in_flight=2102587
41660 ask 2080375 > admit
9795 issue 1 2 1 > in_flight=4182962
6205 mark 1 > wake_watcher
4960 ask 2080375 > hold signal wake_watcher near_end=6
2073899 complete 1 33 done=17115 found=1659 > wake_held charged=2140263 in_flight=2080375
26883 ask 2110319 > hold wake_watcher
1993142 complete 1 34 done=2106 found=2106 > wake_held wake_watcher look charged=2035034 in_flight=0 drained=2106
0 look beat=12279546 active=1 > signal active=0 spent=6
526388 look phase=none start=11124626172 slice=0 word=193 active=0 > wake_held
136607 tick > wake_watcher
6313 look
7764 ask 2072676 > hold wake_watcher
11127 look
44507535 look phase=prepare word=202 > wake_held
42406 tick > wake_watcher
19635 ask 2072676 > hold wake_watcher
13278 look
4045752 look gen=7 phase=slice start=81905 slice=22814500 word=211 > wake_held
39887 tick > wake_watcher
8067 ask 2072676 > enter active=7 near_end=0 spent=0
0 enter > admit
9198 look active=1 > wake_held mark
67065 issue 1 2 1 > in_flight=2072676
9062 mark 1 > wake_watcher
7329 ask 2072676 > admit
4545 issue 1 2 1 > in_flight=4145352
4663 mark 1 > wake_watcher
3891 ask 2072676 > hold wake_watcher
8800 ask 2072676 > hold wake_watcher
2039218 complete 1 35 done=2368 found=2326 > wake_held charged=2075140 in_flight=2072676
65610 ask 2073908 > admit
11066 issue 1 2 1 > in_flight=4146584
6250 mark 1 > wake_watcher
4578 ask 2073908 > hold wake_watcher
2074809 complete 1 36 done=25639 found=2518 > wake_held charged=2139042 in_flight=2073908
32141 ask 2106475 > admit
11632 issue 1 2 1 > in_flight=4180383
8827 mark 1 > wake_watcher
4950 ask 2106475 > hold wake_watcher
2022075 complete 1 37 done=1710 found=1710 > wake_held charged=2103554 in_flight=2106475
55636 ask 2105015 > admit
9655 issue 1 2 1 > in_flight=4211490
6663 mark 1 > wake_watcher
4853 ask 2105015 > hold wake_watcher
1992598 complete 1 38 done=17046 found=2444 > wake_held charged=2054069 in_flight=2105015
38810 ask 2079542 > admit
10070 issue 1 2 1 > in_flight=4184557
6192 mark 1 > wake_watcher
4905 ask 2079542 > hold wake_watcher
2052704 complete 1 39 done=15264 found=1634 > wake_held charged=2114463 in_flight=2079542
33381 ask 2097002 > admit
9796 issue 1 2 1 > in_flight=4176544
5938 mark 1 > wake_watcher
4676 ask 2097002 > hold wake_watcher
2074120 complete 1 40 done=8763 found=2229 > wake_held charged=2134412 in_flight=2097002
61718 ask 2115707 > admit
10058 issue 1 2 1 > in_flight=4212709
7082 mark 1 > wake_watcher
4665 ask 2115707 > hold wake_watcher
2110336 complete 1 41 done=16076 found=1899 > wake_held charged=2186546 in_flight=2115707
33070 ask 2151127 > admit
9989 issue 1 2 1 > in_flight=4266834
5978 mark 1 > wake_watcher
4793 ask 2151127 > hold wake_watcher
2042842 complete 1 42 done=1986 found=1986 > wake_held charged=2110762 in_flight=2151127
66809 ask 2130944 > admit
9053 issue 1 2 1 > in_flight=4282071
6035 mark 1 > wake_watcher
4633 ask 2130944 > hold wake_watcher
2090984 complete 1 43 done=18270 found=1920 > wake_held charged=2161230 in_flight=2130944
42143 ask 2146087 > admit
9986 issue 1 2 1 > in_flight=4277031
5841 mark 1 > wake_watcher
4576 ask 2146087 > hold signal wake_watcher near_end=7
1980961 complete 1 44 done=16550 found=2239 > wake_held charged=2045227 in_flight=2146087
24947 ask 2095657 > hold wake_watcher
1977801 complete 1 45 done=1856 found=1856 > wake_held wake_watcher look charged=2017442 in_flight=0 drained=1856
0 look > signal active=0 spent=7
533452 look phase=none start=11197218001 slice=0 word=225 active=0 > wake_held
7478 tick > wake_watcher
81410 look
12919 ask 2056550 > hold wake_watcher
9275 look
50040597 look beat=11247369680 > wake_held
41189 tick > wake_watcher
8300 ask 2056550 > admit
100064 issue 1 2 1 > in_flight=2056550
10300 mark 1 > wake_watcher
13691 ask 2056550 > admit
5884 issue 1 2 1 > in_flight=4113100
4251 mark 1 > wake_watcher
3611 ask 2056550 > hold wake_watcher
3227635 complete 1 46 done=1850 found=1850 > wake_held charged=3263522 in_flight=2056550
90612 ask 2660036 > hold wake_watcher
2081230 complete 1 47 done=1706 found=1706 > wake_held charged=2171986 in_flight=0
25673 ask 2416011 > hold wake_watcher
15111 look > wake_held
12360 ask 2416011 > hold wake_watcher
6908 look > wake_held
10848 ask 2416011 > hold wake_watcher
6394 look > wake_held
10116 ask 2416011 > hold wake_watcher
6044 look > wake_held
7392 ask 2416011 > hold wake_watcher
8981 look > wake_held
7641 ask 2416011 > hold wake_watcher
8859 look > wake_held
7343 ask 2416011 > hold wake_watcher
6634 look > wake_held
9746 ask 2416011 > hold wake_watcher
6070 look > wake_held
7066 ask 2416011 > hold wake_watcher
8621 look > wake_held
7347 ask 2416011 > hold wake_watcher
8186 look > wake_held
14894 ask 2416011 > hold wake_watcher
6846 look > wake_held
10460 ask 2416011 > hold wake_watcher
6034 look > wake_held
7143 ask 2416011 > hold wake_watcher
8824 look > wake_held
7353 ask 2416011 > hold wake_watcher
8135 look > wake_held
7191 ask 2416011 > hold wake_watcher
8214 look > wake_held
7254 ask 2416011 > hold wake_watcher
