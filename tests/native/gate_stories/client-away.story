# The client loses its connection while commands are held.
10000000000 look phase=none word=17 beat=6357472 workers=1 share=500000
38180 tick > wake_watcher
13098 look
10685031 ask 2500000 > hold signal wake_watcher wants=1 kernel_us=2500
59735 holding 1
4414 ask 2500000 > hold wake_watcher
4177 ask 2500000 > hold wake_watcher
507230 ask 2500000 > hold wake_watcher
3152 look gen=1 phase=open start=16454 word=28 > wake_held
0 ask 2500000 > enter active=1
0 enter > admit
87701 kind 1 2500000 1 1000000000000
0 stream 1 1 legacy blocking
0 issue 1 1 1 > in_flight=2500000
25557 mark 1
6074 ask 2500000 > admit
5237 issue 1 1 1 > in_flight=5000000
3886 mark 1
8529 look active=1
11391 tick > wake_watcher
953359 ask 2500000 > admit
20203 issue 1 1 1 > in_flight=7500000
8408 mark 1
5997 ask 2500000 > admit
4907 issue 1 1 1 > in_flight=10000000
4686 mark 1
3950 ask 2500000 > admit
4113 issue 1 1 1 > in_flight=12500000
4644 mark 1
3654 ask 2500000 > admit
4185 issue 1 1 1 > in_flight=15000000
4321 mark 1
3460 ask 2500000 > admit
8174 issue 1 1 1 > in_flight=17500000
4076 mark 1
3377 ask 2500000 > admit
4115 issue 1 1 1 > in_flight=20000000
3983 mark 1
3842 ask 2500000 > hold wake_watcher
169837 ask 2500000 > hold wake_watcher
40246 look
6604 tick > wake_watcher
10397 ask 2500000 > hold wake_watcher
3890 ask 2500000 > hold wake_watcher
622005 ask 2500000 > hold wake_watcher
433661 look
9189 tick > wake_watcher
1054872 tick > wake_watcher
27393 complete 1 1 done=940 found=940 > charged=3491282 in_flight=17500000
1063349 look
12027 tick > wake_watcher
894628 complete 1 2 done=2706 found=2706 > charged=1968238 in_flight=15000000
161445 look
5664 tick > wake_watcher
584558 look phase=recalled start=10017616611 word=37 > wake_held mark
16155 tick > wake_watcher
1096141 look > mark
17617 tick > wake_watcher
373124 complete 1 3 done=66353 found=765 > wake_held charged=2191057 in_flight=12500000
695987 look > mark
12324 tick > wake_watcher
1118801 tick > wake_watcher
225805 complete 1 4 done=51694 found=1421 > wake_held charged=2067576 in_flight=10000000
391728 ask 2263992 > hold wake_watcher
31050 ask 2263992 > hold wake_watcher
807736 ask 2263992 > hold wake_watcher
10027496 link_lost
0 ask 2263992 > hold
21342 ask 2263992 > hold
4322 ask 2263992 > hold
1782382 complete 1 5 done=19416 found=1662 > wake_held charged=13098334 in_flight=7500000
133816 look > signal mark wants=0
213724 tick > wake_watcher
3609523 ask 5659981 > hold
22143 look > mark
16713 tick > wake_watcher
93229 complete 1 6 done=26420 found=3122 > wake_held charged=4082144 in_flight=5000000
3848729 ask 4871062 > hold
34847 complete 1 7 done=1077 found=1077 > wake_held charged=3908919 in_flight=2500000
33029 look > mark
8033 tick > wake_watcher
86960 ask 4389991 > hold
2022058 complete 1 8 done=6714 found=3569 > wake_held wake_watcher look charged=2144443 in_flight=0 drained=6714
0 look > signal active=0
551114 look phase=none word=41 active=0 > wake_held
40384 ask 3267217 > hold
25431 look
12606 tick > wake_watcher
509316 look
49670019 look beat=17468199
32978 tick > wake_watcher
66421 look
50177163 look
50172261 look beat=17774638
38241 tick > wake_watcher
8906 look
