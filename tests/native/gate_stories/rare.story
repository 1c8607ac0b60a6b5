# Events that recorded sessions do not have. Written by hand; the outcomes are the gate's.
10000000000 look phase=none word=1 beat=0 workers=1 share=500000
0 kind 1 1000000 1 16 measured
0 stream 1 1 blocking
0 stream 2 1
0 stream 3 1 legacy blocking
# The loop takes a grant back at the moment in which the session takes it up.
1000 ask 1000000 streams > hold signal wake_watcher wants=1 kernel_us=1000
0 holding 1
1000000 look gen=1 phase=slice start=0 slice=20000000 word=2 > wake_held
0 ask 1000000 streams > enter active=1
0 enter phase=recalled word=3 > hold wake_watcher look active=0
0 look > wake_held
# Work of two streams, one of which is destroyed. A grant is recalled and a new one is there before
# the work is complete.
1000000 look gen=2 phase=slice start=0 slice=50000000 word=4 > wake_held
0 ask 1000000 streams > enter active=2
0 enter > admit
0 issue 1 1 1 > in_flight=1000000
0 mark 1 > wake_watcher
0 ask 1000000 streams > admit
0 issue 2 1 1 > in_flight=2000000
0 mark 2 > wake_watcher
0 issue 2 1 1 > in_flight=3000000
0 holding > wants=0 held_back=2000000
100000 awaited 1
200000 forget 2 > charged=300000 in_flight=1000000
0 forget 2
100000 look gen=3 word=5 beat=0 active=1 > mark
0 ask 1000000 streams > hold wake_watcher wants=1
0 holding 1
600000 complete 1 1 done=1000 other_word > wake_held wake_watcher look charged=699000 in_flight=0 drained=1000
0 look active=0 > signal active=0
0 ask 1000000 streams > enter active=3
0 enter > admit
# A stream waits for the client, and goes on before the gate hears of it: its work was set aside and
# is complete.
0 wait_launched 1
0 issue 1 1 1 > in_flight=849499
0 mark 1 > wake_watcher
0 holding > wants=0 held_back=2600000
10000 wait_begins 1:1
6000000 look beat=0 > mark hurry charged=6010000 in_flight=0 drained=0
500000 look > signal active=0
0 wait_ends 1:1
1100000 complete 1 3 done=0 other_word > wake_watcher charged=849499
0 went_on 1
0 wait_passed 1:1
0 look
# The same in the legacy stream, without a marker; the gate hears of it before the work is complete.
1000 look gen=4 start=0 word=6 beat=0
0 ask 1000000 streams > enter active=4
0 enter > admit
0 wait_launched 3
0 ordered 1 3:1
0 ordered 3 1:1
0 issue 3 1 1 > in_flight=849499
0 wait_begins 3:1
6000000 look beat=0 > mark hurry charged=6000000 in_flight=0 drained=0
500000 look > signal active=0
0 wait_ends 3:1
0 await_begins
200000000 went_on 3 awaited > wake_watcher in_flight=849499
0 wait_passed 3:1
0 mark 3 > wake_watcher
1000000 complete 3 4 done=0 other_word > charged=1000000 in_flight=0
0 look beat=0
# The client has no connection while a command is held back, and has one again.
0 link_lost
0 ask 1000000 streams > hold
0 holding 1
0 look phase=none word=7 > wake_held
0 link_back > wake_held
0 ask 1000000 streams > hold signal wake_watcher wants=1
0 look gen=5 phase=open start=0 slice=0 word=8 > wake_held
0 ask 1000000 streams > enter active=5
0 enter > admit
0 holding > wants=0
0 issue 1 1 1 > in_flight=924750
0 mark 1
# The connection goes while work is on the device: the token goes back when the work is complete.
0 link_lost
0 ask 1000000 streams > hold
0 holding 1
1000000 complete 1 5 done=0 other_word > wake_held wake_watcher look charged=1000000 in_flight=0 drained=0
0 look word=9 > signal wake_held active=0
0 link_back > wake_held
# The session fails while some of its work is set aside and some is on the device. Its work does not
# stop, and then it does.
0 look gen=6 phase=slice start=0 slice=50000000 word=10 beat=0 > wake_held
0 ask 1000000 streams > enter active=6
0 enter > admit
0 holding
0 wait_launched 1
0 issue 1 1 1 > in_flight=962375
0 mark 1 > wake_watcher
0 wait_begins 1:2
6000000 look beat=0 active=1 > mark hurry charged=6000000 in_flight=0 drained=0
0 ask 1000000 streams > admit
0 issue 2 1 1 > in_flight=962375
0 mark 2 > wake_watcher
1000000 failed
0 ask 1000000 streams > admit
0 look > ask_driver charged=1000000
5000000000 look beat=0 > ask_driver charged=5000000000
6000000000 look beat=0 > ask_driver overdue charged=6000000000
0 stopped > signal active=0 in_flight=0 drained=0
0 look
0 ask 1000000 streams > admit
