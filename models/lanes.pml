/* lanes.pml: tasks that wait for their lanes, as rows. Who may go, who waits, and who looks again when a lane is free?
 *
 * Three tasks and two lanes. A submitter takes its number, and its commit comes later: it locks nothing. Two Schedulers
 * claim: they lock the task's row and the rows of its lanes, as far as nobody else has them (SKIP LOCKED: a claim never
 * waits), read in a new statement who is before the task, and then take all its lanes or park it. Two others end tasks,
 * well or in error: they lock the lanes in order, and wait for them; the same commit takes the task out and un-parks
 * those that now come first. An operator cancels a task that waits, releases a task in error, and resubmits.
 *
 *     claim:  row(t)? lane(A)? lane(B)?   read   hold all | park          end:  row(t) lane(A) lane(B)   out, un-park
 *                 else leave it as it is
 *
 * Checked on every path:  W1 no more than AT tasks of a lane go at a time: from their claim until they have ended, undo
 *                            and error included, or an operator has released them
 *                         W2 no task takes a lane before one that was committed with an earlier number, unless both fit
 *                         W3 no task has a lane that has ended, or was released
 *                         W4 no task is parked that could go: somebody will look at it
 *                         and each path ends with all tasks ended: no deadlock, none is forgotten
 *
 * Flags
 *   -DERROR, -DCANCEL, -DAGAIN   once a task ends in error; one that waits is cancelled; one that has ended is resubmitted
 *   -DAT=2                 two tasks of a lane may go at a time
 *   -DW0=... -DW1= -DW2=   the lanes of each task, as a mask; by default 3, 3 (the higher one first) and 1
 *   -DLOOSE                (mutant) a claim reads who is before the task, and then locks
 *   -DUNLOCKED             (mutant) a claim parks a task without locks
 *   -DOFF_UNPARK           (mutant) the end of a task un-parks nobody
 *   -DOFF_OUT              (mutant) the end of a task leaves its places
 *   -DOFF_COUNT            (mutant) a claim does not count the tasks that have the lane
 *   -DOFF_ORDER            (mutant) a claim does not count the tasks that wait with earlier numbers
 *   -DONE_BY_ONE           (mutant) a claim takes the lanes that it gets, and the task waits for the others
 *   -DSUBMITTER            (mutant) a submitter looks, and writes that it has the lanes
 *   -DOFF_RELEASE          (mutant) a release leaves the task's places
 *   -DERROR_OUT            (mutant) a task in error has no lanes
 *   -DAGAIN_GOES           (mutant) a task that is resubmitted goes at once, whoever has its lanes
 *   -DUNSORTED             (mutant) who ends a task locks its lanes in the order in which it names them
 *   -DROW_WAITS            (mutant) a cancel has the task's row, and waits for its lanes
 *   -DNEVER_PARKED, -DNEVER_LATE, -DNEVER_LEFT, -DNEVER_TOGETHER, -DNEVER_RELEASED, -DNEVER_AGAIN, -DNEVER_CANCELLED
 *                          must be violated: they show that the state is reached
 */
#ifndef AT
#define AT 1
#endif
#ifndef W0
#define W0 3
#endif
#ifndef W1
#define W1 3
#endif
#ifndef W2
#define W2 1
#endif
#define N 3
#define lanes(t) (t == 0 -> W0 : (t == 1 -> W1 : W2))

mtype = { absent, queued, going, stuck, ended };
mtype state[N] = absent;
byte number[N];            /* of the submission, from one clock */
byte waits[N], has[N];     /* the lanes in which a task waits, and those that it has */
bool parked[N];
bool busy[N];              /* what is true: it may have effects in place, and nobody has released it */
byte row[N], lane[2];      /* who has locked it */

byte clock = 0;
/* What may still happen. */
#ifdef CANCEL
bool cancels = true;
#else
bool cancels = false;
#endif
#ifdef AGAIN
bool again = true;
#else
bool again = false;
#endif
#ifdef ERROR
byte errors = 1;
#else
byte errors = 0;
#endif

#define before(u, t, l) (ahead_has(u, l) + ahead_waits(u, t, l))
#ifdef OFF_COUNT
#define ahead_has(u, l) 0
#else
#define ahead_has(u, l) ((has[u] >> l) & 1)
#endif
#ifdef OFF_ORDER
#define ahead_waits(u, t, l) 0
#else
#define ahead_waits(u, t, l) (((waits[u] >> l) & 1) && number[u] < number[t])
#endif
#define all_before(t, l) (before(0, t, l) + before(1, t, l) + before(2, t, l))
#define first_in(t, l) (!((lanes(t) >> l) & 1) || ((has[t] >> l) & 1) || all_before(t, l) < AT)
#define may_go(t) (first_in(t, 0) && first_in(t, 1))
/* The same, as it is: for what is checked. */
#define truly_before(u, t, l) (((has[u] >> l) & 1) || (((waits[u] >> l) & 1) && number[u] < number[t]))
#define truly_first(t, l) (!((lanes(t) >> l) & 1) || truly_before(0, t, l) + truly_before(1, t, l) + truly_before(2, t, l) < AT)
#define truly_may_go(t) (truly_first(t, 0) && truly_first(t, 1))
#define lies(t) (state[t] == queued && parked[t] && truly_may_go(t))
#define goes(t, l) (busy[t] && ((lanes(t) >> l) & 1))
#define over (state[0] == ended && state[1] == ended && state[2] == ended && !again)

inline check() {
  assert(goes(0, 0) + goes(1, 0) + goes(2, 0) <= AT && goes(0, 1) + goes(1, 1) + goes(2, 1) <= AT);       /* W1 */
  assert((busy[0] || !has[0]) && (busy[1] || !has[1]) && (busy[2] || !has[2]));                          /* W3 */
  assert(!lies(0) && !lies(1) && !lies(2));                                                              /* W4 */
#ifdef NEVER_TOGETHER
  assert(goes(0, 0) + goes(1, 0) + goes(2, 0) < 2);
#endif
}

#define next_in(u, t, l) (((lanes(u) & lanes(t)) >> l) & 1 && first_in(u, l))
inline unpark(u, t) {
  if
  :: state[u] == queued && parked[u] && (next_in(u, t, 0) || next_in(u, t, 1)) -> parked[u] = false
  :: else -> skip
  fi
}
/* The places of a task are given up, and those that come first now are looked at. */
inline out(t) {
  waits[t] = 0; has[t] = 0;
#ifndef OFF_UNPARK
  unpark(0, t); unpark(1, t); unpark(2, t)
#endif
}
/* Their rows are written, and nobody else may have locked them. */
#define kept_from(u) (state[u] == queued && parked[u] && row[u] != 0 && row[u] != me)
#define others_free !(kept_from(0) || kept_from(1) || kept_from(2))
inline unlock(t) {
  if :: row[t] == me -> row[t] = 0 :: else -> skip fi;
  if :: lane[0] == me -> lane[0] = 0 :: else -> skip fi;
  if :: lane[1] == me -> lane[1] = 0 :: else -> skip fi
}
/* Locks are waited for. */
inline wait_lanes(t) {
#ifdef UNSORTED
  if
  :: t == 1 && (lanes(t) & 2) -> atomic { lane[1] == 0 -> lane[1] = me }
  :: else -> skip
  fi;
#endif
  if :: lanes(t) & 1 -> atomic { lane[0] == 0 -> lane[0] = me } :: else -> skip fi;
  if :: (lanes(t) & 2) && lane[1] != me -> atomic { lane[1] == 0 -> lane[1] = me } :: else -> skip fi
}
/* Nobody waits: all that is needed, or nothing. */
#define lockable(t) (row[t] == 0 && (!(lanes(t) & 1) || lane[0] == 0) && (!(lanes(t) & 2) || lane[1] == 0))
inline lock_all(t) {
  row[t] = me;
  if :: lanes(t) & 1 -> lane[0] = me :: else -> skip fi;
  if :: lanes(t) & 2 -> lane[1] = me :: else -> skip fi
}
inline queue(t) {
  state[t] = queued; waits[t] = lanes(t); parked[t] = false
}
inline go(t) {
  state[t] = going; waits[t] = 0; has[t] = lanes(t); busy[t] = true
}

proctype Submitter(byte t) {
  bool free = false;
  clock++; number[t] = clock;          /* its statement runs ... */
#ifdef SUBMITTER
  free = may_go(t);
#endif
  atomic {                             /* ... and it is committed */
#ifdef NEVER_LATE
    assert(!(state[0] != absent && number[0] > number[t]) && !(state[1] != absent && number[1] > number[t])
           && !(state[2] != absent && number[2] > number[t]));
#endif
    queue(t);
    if :: free -> go(t) :: else -> skip fi;
    check()
  }
}

#ifdef ONE_BY_ONE
inline take_some(t, l) {
  if
  :: (waits[t] >> l) & 1 && first_in(t, l) -> waits[t] = waits[t] & ~(1 << l); has[t] = has[t] | (1 << l); busy[t] = true
  :: else -> skip
  fi
}
#endif
proctype Claimer(byte me) {
  byte t;
  bool free;
again_: do
  :: atomic { over -> break }
  :: atomic {
       if
       :: state[0] == queued && !parked[0] -> t = 0
       :: state[1] == queued && !parked[1] -> t = 1
       :: state[2] == queued && !parked[2] -> t = 2
       fi;
#if defined(LOOSE) || defined(UNLOCKED)
       free = may_go(t) }
#endif
#ifdef UNLOCKED
     if
     :: atomic { !free -> if :: state[t] == queued -> parked[t] = true; check() :: else -> skip fi }; goto again_
     :: free -> skip
     fi;
#endif
#if defined(LOOSE) || defined(UNLOCKED)
     atomic {
#endif
       if
       :: lockable(t) && state[t] == queued -> lock_all(t)
       :: else ->                      /* left as it is: somebody looks at it again */
#ifdef NEVER_LEFT
          assert(lockable(t));
#endif
          t = 0; goto again_
       fi }
#ifdef LOOSE
     atomic {
#else
     atomic { free = may_go(t);        /* a new statement sees what was committed before the locks were had */
#if !defined(UNLOCKED)
       assert(!free || truly_may_go(t)); /* W2, and W1 */
#endif
     }
     atomic {
#endif
#ifdef ONE_BY_ONE
       if :: !free -> take_some(t, 0); take_some(t, 1) :: else -> skip fi;
#endif
       if
       :: free -> go(t)
       :: else -> parked[t] = true
#ifdef NEVER_PARKED
          ; assert(false)
#endif
       fi;
       unlock(t); check();
       free = false; t = 0 }
  od
}
proctype Ender(byte me) {
  byte t;
again_: do
  :: atomic { over -> break }
  :: atomic {                          /* its fence: the row of a task that goes */
       if
       :: state[0] == going && row[0] == 0 -> t = 0
       :: state[1] == going && row[1] == 0 -> t = 1
       :: state[2] == going && row[2] == 0 -> t = 2
       fi;
       row[t] = me }
     if
     :: atomic { errors > 0 -> errors--; state[t] = stuck;
#ifdef ERROR_OUT
          waits[t] = 0; has[t] = 0; unpark(0, t); unpark(1, t); unpark(2, t);
#endif
          unlock(t); check(); t = 0 }
     :: wait_lanes(t);
        atomic { others_free; state[t] = ended; busy[t] = false;
#ifndef OFF_OUT
          out(t);
#endif
          unlock(t); check(); t = 0 }
     fi
  od
}

/* A task without lanes is resubmitted, or undone although it was processed: it queues like everybody. */
inline requeue(t) {
#ifdef NEVER_AGAIN
  assert(busy[0] + busy[1] + busy[2] == 0);
#endif
  clock++; number[t] = clock; queue(t);
#ifdef AGAIN_GOES
  go(t);
#endif
  check(); t = 0
}
#ifdef ROW_WAITS
#define cancellable(t) (state[t] == queued && row[t] == 0)
#else
#define cancellable(t) (state[t] == queued && lockable(t))
#endif
proctype Operator(byte me) {
  byte t;
  do
  :: atomic { over -> break }
  :: again -> again = false            /* everything is as it should be */
  :: atomic { cancels && (cancellable(0) || cancellable(1) || cancellable(2)) ->    /* a task that waits is cancelled */
       if
       :: cancellable(0) -> t = 0
       :: cancellable(1) -> t = 1
       :: cancellable(2) -> t = 2
       fi;
       cancels = false;
#ifdef ROW_WAITS
       row[t] = me }
     wait_lanes(t);
#else
       lock_all(t) }
#endif
     atomic { others_free;
#ifdef NEVER_CANCELLED
       assert(!parked[t]);
#endif
       state[t] = ended; out(t); unlock(t); check(); t = 0 }
  :: atomic { (state[0] == stuck && has[0]) || (state[1] == stuck && has[1]) || (state[2] == stuck && has[2]) ->
       if :: state[0] == stuck && has[0] -> t = 0 :: state[1] == stuck && has[1] -> t = 1
          :: state[2] == stuck && has[2] -> t = 2 fi;
       if
       :: row[t] = me                  /* released */
       :: go(t); t = N                 /* resubmitted: it has its lanes */
       fi }
     if
     :: t < N -> wait_lanes(t);
        atomic { others_free; busy[t] = false;
#ifdef NEVER_RELEASED
          assert(parked[0] + parked[1] + parked[2] == 0);
#endif
#ifndef OFF_RELEASE
          out(t);
#endif
          unlock(t); check(); t = 0 }
     :: else -> t = 0
     fi
  :: atomic { (state[0] == stuck && !has[0]) || (state[1] == stuck && !has[1]) || (state[2] == stuck && !has[2]) ->
       if :: state[0] == stuck && !has[0] -> t = 0 :: state[1] == stuck && !has[1] -> t = 1
          :: state[2] == stuck && !has[2] -> t = 2 fi;
       requeue(t) }
  :: atomic { again && (state[0] == ended || state[1] == ended || state[2] == ended) ->
       if :: state[0] == ended -> t = 0 :: state[1] == ended -> t = 1 :: state[2] == ended -> t = 2 fi;
       again = false; requeue(t) }
  od
}
init { atomic {
  run Submitter(0); run Submitter(1); run Submitter(2); run Claimer(1); run Claimer(2); run Ender(3);
#if AT > 1
  run Ender(4);
#endif
  run Operator(5)
} }
