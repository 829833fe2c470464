/* attempt.pml: one step of one task, from claim to end.
 *
 * Two schedulers, two agents, one supervisor, one remote service and a clock that may pass complete-by at any moment.
 * Requests are taken in any order, replies may be lost, an agent may stop before or after the call, a scheduler may stop
 * between claim and send, or rest for any time between receiving a reply and writing it.
 *
 * Checked on every path:  P1 one completion recorded per round   P2 two attempts never both take effect
 *                         P3 no reply of a superseded attempt is accepted   P4 failures never pass threshold + 1
 * Checked at rest:        P5 the task has ended (processed, undone or error)
 *                         P6 processed => the effect stands   P7 undone => no effect stands
 *
 * Flags
 *   -DSTORE_FENCE      a reply is accepted only if state, attempt and complete-by still agree, in one store transaction
 *   -DKEY              the service deduplicates on the idempotency key, which is the same for all attempts
 *   -DTOKEN            the service refuses a token lower than the highest it has seen
 *   -DSETTLE           settle-then-undo: the undo first drives the do under its key to a definite answer
 *   -DOFF_DOUBT        (mutant) undo only what was recorded as done, not what is in doubt
 *   -DDUP              the network may deliver a request up to three times
 *   -DRESUBMIT         an operator resubmits an undone task once, in the next round
 *   -DRESUBMIT_ERROR   an operator resubmits a task in error once, in the next round
 *   -DUNDO_ERROR       an operator orders the undo of a task in error once more
 *   -DKEY_ROUND        the key carries the round
 *   -DUNDO_BY_KEY      an undo touches only the effect made under its own round's key (with -DKEY_ROUND)
 *   -DHOLD             past the threshold the task goes to error at once (on_failure="hold"); no undo is sent
 *   -DT=n              failure threshold, n + 1 attempts (default 1)
 *   -DU=n              an undo is sent again at most n times, then error (default 1)
 *   -DNEVER_PROCESSED, -DNEVER_UNDONE, -DNEVER_ERROR  must be violated: they show that the state is reached (no vacuous pass)
 */
#ifndef T
#define T 1            /* failure threshold: T+1 attempts */
#endif
#ifndef U
#define U 1            /* undo is re-sent at most U times; then Error */
#endif
#define DO 0
#define UN 1
mtype = { Pending, Processing, Undoing, Processed, Undone, Error };
mtype state = Pending;
byte attempt = 0;          /* the token: raised by every claim and every undo */
byte fails = 0, ufails = 0;
byte sub = 0;              /* round of the step */
bool expired = false;      /* complete-by passed, on the store's clock */
bool resub = false;
#ifdef UNDO_ERROR
bool again = false;
#endif
byte accepted = 0;         /* completions recorded in this round */

chan req = [5] of { byte, byte, byte };   /* kind, attempt, sub */
chan rep = [5] of { byte, byte };         /* kind, attempt */

/* the remote service */
byte applied = 0, undone = 0, high = 0, lastdo = 0;
bool key[2];
#ifdef UNDO_BY_KEY
bool eff[2];               /* which round's effect stands */
#endif
byte net = 0;              /* standing effects: 0 or 1 is right, 2 is a double effect */

inline svc_do(a, g, ok) {
  atomic {
    ok = true;
    if
#ifdef TOKEN
    :: a < high -> ok = false
#endif
    :: else ->
#ifdef TOKEN
       high = a;
#endif
       if
#ifdef KEY
#ifdef KEY_ROUND
       :: key[g] -> skip
#else
       :: key[0] -> skip
#endif
#endif
       :: else ->
#ifdef KEY_ROUND
          key[g] = true;
#else
          key[0] = true;
#endif
          applied++; net++; lastdo = a;
#ifdef UNDO_BY_KEY
          eff[g] = true;
#endif
          assert(net <= 1);           /* P2: two attempts never both take effect */
       fi
    fi
  }
}
inline svc_undo(a, g, ok) {
  atomic {
    ok = true;
    if
#ifdef TOKEN
    :: a < high -> ok = false
#endif
    :: else ->
#ifdef TOKEN
       high = a;
#endif
#ifdef UNDO_BY_KEY
       if :: eff[g] -> eff[g] = false; net--; undone++ :: else -> skip fi
#else
       if :: net > 0 -> net--; undone++ :: else -> skip fi
#endif
    fi
  }
}

active [2] proctype Agent() {
  byte k, a, g; bool ok;
end: do
  :: req ?? k, a, g ->                 /* any order: reordering */
     if
     :: true -> skip                   /* crashed before the call, or saw complete-by pass and halted */
     :: k == DO -> svc_do(a, g, ok);
        if :: ok -> rep ! DO, a :: true -> skip fi     /* reply may be lost */
     :: k == UN ->
#ifdef SETTLE
        svc_do(a, g, ok);
#endif
        svc_undo(a, g, ok);
        if :: ok -> rep ! UN, a :: true -> skip fi
     fi;
     k = 0; a = 0; g = 0; ok = false
  od
}

active [2] proctype Scheduler() {
  byte k, a, mine, g;
end: do
  :: atomic { state == Pending -> state = Processing; attempt++; mine = attempt; g = sub; expired = false };
     if                                 /* crash or stop is possible here */
     :: true -> skip
     :: req ! DO, mine, g
#ifdef DUP
     :: req ! DO, mine, g; req ! DO, mine, g
#endif
     fi; mine = 0; g = 0
  :: rep ?? k, a ->                     /* paused (SIGSTOP) here for any time */
     atomic {
       if
       :: k == DO ->
          if
#ifdef STORE_FENCE
          :: state == Processing && a == attempt && !expired ->
#else
          :: true ->
#endif
             state = Processed; accepted++;
             assert(accepted <= 1);     /* P1: one completion is recorded */
             assert(a == attempt)       /* P3: never from a superseded attempt */
          :: else -> skip
          fi
       :: k == UN ->
          if
#ifdef STORE_FENCE
          :: state == Undoing && a == attempt -> state = Undone
#else
          :: true -> state = Undone
#endif
          :: else -> skip
          fi
       fi; k = 0; a = 0
     }
  od
}

active proctype Clock() {
end: do
  :: atomic { (state == Processing || state == Undoing) && !expired -> expired = true }
  od
}

active proctype Supervisor() {
  byte a; byte g;
end: do
  :: atomic { state == Processing && expired -> fails++;
       assert(fails <= T + 1);          /* P4 */
       if
       :: fails <= T -> state = Pending
       :: else ->
#ifdef OFF_DOUBT
          state = Undone                /* nothing recorded as done: nothing to undo */
#elif defined(HOLD)
          state = Error                 /* an operator decides; no undo was sent */
#else
          state = Undoing; attempt++; a = attempt; g = sub; expired = false
#endif
       fi }
     if :: a > 0 -> req ! UN, a, g; a = 0; g = 0 :: else -> skip fi
  :: atomic { state == Undoing && expired ->
       if
       :: ufails < U -> ufails++; attempt++; a = attempt; g = sub; expired = false
       :: else -> state = Error         /* an operator is told */
       fi }
     if :: a > 0 -> req ! UN, a, g; a = 0; g = 0 :: else -> skip fi
#ifdef RESUBMIT
  :: atomic { state == Undone && !resub -> resub = true; sub++; state = Pending; fails = 0; ufails = 0; expired = false; accepted = 0 }
#endif
#ifdef RESUBMIT_ERROR
  :: atomic { state == Error && !resub -> resub = true; sub++; state = Pending; fails = 0; ufails = 0; expired = false; accepted = 0 }
#endif
#ifdef UNDO_ERROR
  :: atomic { state == Error && !again -> again = true; ufails = 0; state = Undoing; attempt++; a = attempt; g = sub; expired = false }
     if :: a > 0 -> req ! UN, a, g; a = 0; g = 0 :: else -> skip fi
#endif
  od
}

/* when nothing more can happen, the books must balance */
active proctype Auditor() {
  timeout ->
#ifdef NEVER_PROCESSED
  assert(state != Processed);
#endif
#ifdef NEVER_UNDONE
  assert(state != Undone);
#endif
#ifdef NEVER_ERROR
  assert(state != Error);
#endif
  assert(state == Processed || state == Undone || state == Error);   /* P5 one terminal state, none stuck */
  assert(!(state == Processed) || net == 1);                         /* P6 */
  assert(!(state == Undone)    || net == 0)                          /* P7 */
}
