/* waiting.pml: one wait for a signal with a timeout, then a sleep, as rows that nobody holds.
 *
 * Two Schedulers, of which the first may be stopped with a Decision in its hands, and be declared dead; a sender whose commit comes
 * late; a clock that may pass the moment of the present timer at any time, or never; a cancel, and the task's complete-by. A claim
 * and its first Decision are one transaction. Later Decisions are made in memory and committed later; meanwhile messages are
 * read. Where a task only waits, a Decision may let it go (it waits for longer than `linger`) or keep it.
 *
 * Checked on every path:  W1 each wait and each sleep ends once, the task has one outcome, and what has ended stays so
 *                         W2 a signal ends at most one wait (I20)
 *                         W3 no wait times out while a signal that was committed before its moment is unread (I21)
 *                         W4 no sleep ends before its moment
 *   with -DLIVE:          W5 no wake-up is lost: again and again there is no message that nobody has read, and no
 *                            sleeper whose moment has passed (weak fairness; nobody needs the clock to go on)
 *
 * Flags
 *   -DTWICE                a second wait for the same signal follows the sleep
 *   -DLIVE                 check W5 too
 *   -DOFF_RING             (mutant) whoever looks for messages leaves sleepers out
 *   -DOFF_LEVEL            (mutant) the sender wakes by an update of the task's row, if it sleeps when the statement runs
 *   -DOFF_USED             (mutant) a signal that has ended a wait is kept
 *   -DOFF_READ             (mutant) a Scheduler that holds the task decides a timeout without reading the inbox
 *   -DOFF_EPOCH            (mutant) a commit does not look who has the lock
 *   -DNEVER_SIGNAL, -DNEVER_TIMEOUT, -DNEVER_PROCESSED, -DNEVER_CANCEL, -DNEVER_EXPIRED, -DNEVER_LATE, -DNEVER_LET_GO,
 *   -DNEVER_TAKEN_OVER
 *                          must be violated: they show that the state is reached
 */
mtype = { sleeping, going, processed, undone };
mtype state = going;       /* it may be claimed */

#define WAIT 0
#define SLEEP 1
#define AGAIN 2
#define END 3
byte at = WAIT;            /* the step that is ready */
bool passed = false;       /* the moment of its timer has come */
byte ended[3];

byte lock = 0, epoch = 0;  /* who has the task, and for how often somebody had it */

/* the inbox, and the signal */
#define SIGNAL 1
#define CANCEL 2
#define EXPIRED 4
byte inbox = 0;            /* rows, until a Decision that has folded them is committed */
bool sent = false;         /* the signal is committed */
bool early = false;        /* it was when the moment of a wait came, and nothing had used it */
bool kept = false;
byte uses = 0;
#ifdef OFF_LEVEL
bool rung = false;
#endif

bool deciding = false, stopped = false;   /* of the first Scheduler */

#define at_rest(s) (s == processed || s == undone)
#if defined(OFF_RING)
#define rings (inbox && state != sleeping)
#elif defined(OFF_LEVEL)
#define rings ((inbox & (CANCEL | EXPIRED)) || rung || (inbox && state != sleeping))
#else
#define rings (inbox != 0)
#endif
#define claimable (lock == 0 && (state == going || rings || (state == sleeping && passed)))
#define heard_early (at == AGAIN && kept && !at_rest(state))       /* a wait that begins takes it at once */
#define lost (inbox != 0 || heard_early || (state == sleeping && passed))

/* What follows from messages `m` and a timer that has fired `t`; signals are folded before timers. */
inline decide(m, t) {
  d_from = at; d_to = at; d_state = going; d_rows = m; d_use = false; d_timed = false;
  d_kept = kept || (m & SIGNAL); d_verdict = 0;
  if
  :: at_rest(state) -> d_state = state
  :: else ->
     if
     :: m & CANCEL -> d_verdict = CANCEL
     :: m & EXPIRED -> d_verdict = EXPIRED
     :: !(m & (CANCEL | EXPIRED)) || (m & SIGNAL) ->  /* it may have come before them */
        if
        :: (at == WAIT || at == AGAIN) && d_kept -> d_use = true
        :: (at == WAIT || at == AGAIN) && !d_kept && t -> d_timed = true
        :: at == SLEEP && t -> d_timed = true
        :: else -> skip
        fi
     fi;
     if
     :: d_use || d_timed ->
#ifdef TWICE
        d_to = at + 1
#else
        d_to = (at == WAIT -> SLEEP : END)
#endif
     :: else -> skip
     fi;
#ifndef OFF_USED
     if :: d_use -> d_kept = false :: else -> skip fi;
#endif
     if
     :: d_verdict == 0 && (m & CANCEL) -> d_verdict = CANCEL
     :: d_verdict == 0 && !(m & CANCEL) && (m & EXPIRED) -> d_verdict = EXPIRED
     :: else -> skip
     fi;
     if
     :: d_to == END -> d_state = processed; d_verdict = 0
     :: d_to != END && d_verdict -> d_state = undone
     :: d_to != END && !d_verdict && (d_to != d_from || !passed) && !(d_to == AGAIN && d_kept) ->
        if :: d_state = sleeping :: d_state = going fi
     :: else -> skip
     fi
  fi
}

/* The commit of what was decided. */
inline write() {
  inbox = inbox & ~d_rows;
  assert(!at_rest(state) || (d_state == state && d_to == at));   /* W1: what has ended stays so */
  if
  :: d_to != d_from ->
     ended[d_from]++;
     assert(ended[d_from] == 1);                               /* W1: once */
     if
     :: d_use -> uses++; assert(uses == 1)                     /* W2 */
     :: d_timed && d_from != SLEEP ->
        assert(!(early && uses == 0))                          /* W3 */
     :: else -> assert(passed)                                 /* W4 */
     fi;
#ifdef NEVER_SIGNAL
     assert(!(d_use && d_state != undone));
#endif
#ifdef NEVER_TIMEOUT
     assert(!(d_timed && d_from == WAIT));
#endif
     at = d_to; passed = false; early = false
  :: else -> skip
  fi;
#ifdef NEVER_PROCESSED
  assert(d_state != processed);
#endif
#ifdef NEVER_CANCEL
  assert(!(d_state == undone && d_verdict == CANCEL));
#endif
#ifdef NEVER_EXPIRED
  assert(!(d_state == undone && d_verdict == EXPIRED));
#endif
#ifdef NEVER_LATE
  assert(!(at_rest(state) && (d_rows & SIGNAL)));
#endif
#ifdef NEVER_LET_GO
  assert(!(d_state == sleeping && (memory & ~d_rows)));
#endif
  kept = d_kept; state = d_state;
  memory = memory & ~d_rows; fired = false;
  if
  :: state == going -> lock = me; holds = true
  :: else -> lock = 0; holds = false; memory = 0
  fi
}

proctype Scheduler(byte me) {
  byte my = 0, memory = 0;         /* the epoch of its lock; the rows that it has read */
  bool holds = false, fired = false, has = false;
  byte d_from, d_to, d_rows, d_verdict; /* a Decision: the step before and after, the rows folded, who undid */
  bool d_use, d_timed, d_kept; mtype d_state;
end: do
  :: atomic { claimable && !holds && !(me == 1 && stopped) ->
#ifdef OFF_LEVEL
       rung = false;
#endif
#ifdef NEVER_TAKEN_OVER
       assert(state != going || epoch == 0);
#endif
       epoch++; my = epoch; memory = inbox;
       decide(inbox, passed); write() }
  :: atomic { holds && !(me == 1 && stopped) && (inbox & ~memory) -> memory = memory | inbox }
  :: atomic { holds && !has && !(me == 1 && stopped) && lock == me && epoch == my && (memory || (passed && !fired) || heard_early) ->
       if
       :: passed -> fired = true;
#ifndef OFF_READ
          memory = memory | inbox
#endif
       :: memory || heard_early    /* its own clock is behind the store's */
       fi;
       decide(memory, fired); has = true;
       if :: me == 1 -> deciding = true :: else -> skip fi }
  :: atomic { has && !(me == 1 && stopped) ->
       if
#ifdef OFF_EPOCH
       :: true -> write()
#else
       :: lock == me && epoch == my -> write()
       :: else -> holds = false; memory = 0; fired = false
#endif
       fi;
       has = false;
       if :: me == 1 -> deciding = false :: else -> skip fi }
  :: atomic { holds && !has && !(me == 1 && stopped) && !(lock == me && epoch == my) ->
       holds = false; memory = 0; fired = false }
  od
}

/* The Supervisor frees the tasks of a Scheduler that stands still. */
active proctype Supervisor() {
end: do
  :: atomic { stopped && lock == 1 -> lock = 0 }
  od
}
/* Who stops the first one, and perhaps lets it go on. */
active proctype Stopper() {
  if
  :: atomic { deciding -> stopped = true }
  :: true -> goto over
  fi;
  if
  :: stopped = false
  :: true
  fi;
over: skip
}
active proctype Sender() {
  bool saw = false;
  saw = (state == sleeping);       /* its statement runs ... */
  atomic {                         /* ... and it is committed */
    sent = true; inbox = inbox | SIGNAL;
#ifdef OFF_LEVEL
    if :: saw && state == sleeping -> rung = true :: else -> skip fi;
#endif
    saw = false
  }
}
active proctype Operator() {
  if
  :: atomic { !at_rest(state) -> inbox = inbox | CANCEL }
  :: true
  fi
}
active proctype Clock() {
  bool due = false;                /* complete-by has passed */
  do
  :: atomic { !passed && !at_rest(state) -> passed = true; early = (at != SLEEP && sent && uses == 0) }
  :: atomic { !due && !at_rest(state) -> due = true; inbox = inbox | EXPIRED }
  :: break                         /* it goes no further */
  od
}
init { atomic { run Scheduler(1); run Scheduler(2) } }

#ifdef LIVE
ltl wakes { []<> !(lost) }
#endif
