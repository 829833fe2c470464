/* supervisors.pml: attempt.pml with two supervisors that read first and write later.
 *
 * Each supervisor reads an overdue step, may rest for any time, then writes. Without -DCAS the write is blind.
 * There is no term number here on purpose: the question is what the compare-and-set alone protects (see leader.pml for the term).
 *
 * Checked on every path:  P1 one completion recorded per round   P2 two attempts never both take effect
 *                         P3 no reply of a superseded attempt is accepted   P4 failures never pass threshold + 1
 * Checked at rest:        P5 the task has ended (processed, undone or error)
 *                         P6 processed => the effect stands   P7 undone => no effect stands
 * Checked on every write of a supervisor: P8 it never touches a step that has ended or was claimed again meanwhile
 *
 * Flags
 *   -DSTORE_FENCE      a reply is accepted only if state, attempt and complete-by still agree, in one store transaction
 *   -DKEY              the service deduplicates on the idempotency key, which is the same for all attempts
 *   -DTOKEN            the service refuses a token lower than the highest it has seen
 *   -DCAS              the supervisor's write is a compare-and-set on (state, complete-by passed, attempt it saw)
 *   -DSUPS=n           number of supervisors (default 2)
 *   -DCANCEL           somebody cancels the task once, at any moment
 *   -DSETTLE           settle-then-undo: the undo first drives the do under its key to a definite answer
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
#ifndef SUPS
#define SUPS 2         /* supervisors */
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
bool key[2];
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
       if :: net > 0 -> net--; undone++ :: else -> skip fi
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

active [SUPS] proctype Supervisor() {
  byte a; byte g; byte saw;
end: do
  :: atomic { state == Processing && expired -> saw = attempt }     /* SELECT ... ; then a pause of any length */
     atomic { if
#ifdef CAS
       :: !(state == Processing && expired && attempt == saw) -> skip
       :: else ->
#else
       :: true ->
#endif
       assert(state == Processing && attempt == saw);  /* P8: never touch a finished or re-claimed step */
       fails++;
       if :: fails <= T -> state = Pending
       :: else -> state = Undoing; attempt++; a = attempt; g = sub; expired = false fi
       fi; saw = 0 }
     if :: a > 0 -> req ! UN, a, g; a = 0; g = 0 :: else -> skip fi
  :: atomic { state == Undoing && expired ->
       if
       :: ufails < U -> ufails++; attempt++; a = attempt; g = sub; expired = false
       :: else -> state = Error         /* an operator is told */
       fi }
     if :: a > 0 -> req ! UN, a, g; a = 0; g = 0 :: else -> skip fi
  od
}

#ifdef CANCEL
/* an operator or the submitter cancels once, at any moment */
active proctype Canceller() {
  byte a; byte g;
end: atomic { state == Processing -> state = Undoing; attempt++; a = attempt; g = sub; expired = false };
  req ! UN, a, g
}
#endif

/* when nothing more can happen, the books must balance */
active proctype Auditor() {
  timeout ->
  assert(state == Processed || state == Undone || state == Error);   /* P5 one terminal state, none stuck */
  assert(!(state == Processed) || net == 1);                         /* P6 */
  assert(!(state == Undone)    || net == 0)                          /* P7 */
}
