/* rollback.pml: attempt.pml with a store that once goes back to an earlier state.
 *
 * This is fail-over to an asynchronous replica, or a restored backup: a snapshot is taken at any moment and put back at any
 * later moment. State, failure counts and the attempt go back; the remote service and the messages under way do not.
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
 *   -DGENERATION       the token carries the store generation: after the fail-over it is above all earlier tokens
 *   -DTOMBSTONE        the service remembers that a key was undone and answers "undone" to a later do (tombstone)
 *   -DSETTLE           settle-then-undo: the undo first drives the do under its key to a definite answer
 *   -DOFF_DOUBT        (mutant) undo only what was recorded as done, not what is in doubt
 *   -DDUP              the network may deliver a request up to three times
 *   -DT=n              failure threshold, n + 1 attempts (default 1)
 *   -DU=n              an undo is sent again at most n times, then error (default 1)
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
byte accepted = 0;         /* completions recorded in this round */

chan req = [5] of { byte, byte, byte };   /* kind, attempt, sub */
chan rep = [5] of { byte, byte };         /* kind, attempt */

/* the remote service */
byte applied = 0, undone = 0, high = 0, lastdo = 0;
bool key[2]; bool tomb[2];   /* keys known; keys known to be undone */
byte net = 0;              /* standing effects: 0 or 1 is right, 2 is a double effect */

inline svc_do(a, g, ok) {
  atomic {
    ok = true; un = false;
    if
#ifdef TOMBSTONE
    :: tomb[0] -> un = true
#endif
#ifdef TOKEN
    :: a < high -> ok = false
#endif
    :: else ->
#ifdef TOKEN
       high = a;
#endif
       if
#ifdef KEY
       :: key[0] -> skip
#endif
       :: else ->
          key[0] = true;
          applied++; net++; lastdo = a;
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
#ifdef TOMBSTONE
       tomb[0] = true;
#endif
       if :: net > 0 -> net--; undone++ :: else -> skip fi
    fi
  }
}

active [2] proctype Agent() {
  byte k, a, g; bool ok; bool un;
end: do
  :: req ?? k, a, g ->                 /* any order: reordering */
     if
     :: true -> skip                   /* crashed before the call, or saw complete-by pass and halted */
     :: k == DO -> svc_do(a, g, ok);
        if :: un -> rep ! 2, a :: ok && !un -> rep ! DO, a :: true -> skip fi     /* reply may be lost */
     :: k == UN ->
#ifdef SETTLE
        svc_do(a, g, ok);
#endif
        svc_undo(a, g, ok);
        if :: ok -> rep ! UN, a :: true -> skip fi
     fi;
     k = 0; a = 0; g = 0; ok = false; un = false
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
       :: k == 2 -> if :: state == Processing && a == attempt && !expired -> state = Undone :: else -> skip fi
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
          state = Undone                /* nothing recorded as completed: nothing to undo */
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
  od
}

mtype s_state; byte s_att, s_f, s_u, s_acc; bool s_e; byte did = 0;
/* fail-over to an asynchronous replica: the store goes back, once, to a state it was in before */
active proctype Failover() {
end: do
  :: atomic { did == 0 -> did = 1; s_state = state; s_att = attempt; s_f = fails; s_u = ufails; s_acc = accepted; s_e = expired }
  :: atomic { did == 1 -> did = 2; state = s_state; fails = s_f; ufails = s_u; accepted = s_acc; expired = s_e;
#ifdef GENERATION
       attempt = s_att + 16    /* a new generation: above every token ever given out */
#else
       attempt = s_att
#endif
     }
  od
}

/* when nothing more can happen, the books must balance */
active proctype Auditor() {
  timeout ->
  assert(state == Processed || state == Undone || state == Error);   /* P5 one terminal state, none stuck */
  assert(!(state == Processed) || net == 1);                         /* P6 */
  assert(!(state == Undone)    || net == 0)                          /* P7 */
}
