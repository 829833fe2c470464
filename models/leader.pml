/* leader.pml: two supervisors, a lease, a term number.
 *
 * A leader reads an overdue step, may be stopped (SIGSTOP) for any time before or after it looks at its own lease,
 * and writes. The lease may run out at any moment; up to three terms are given out.
 *
 * Checked on every write:  one expiry is counted once (fails <= expiries that really happened)
 *   with -DWANT_NO_STALE:  no act by a leader whose term is over
 *
 * Flags
 *   -DCHECK_LEASE      the supervisor looks at its own lease before it writes, as a separate step
 *   -DTERM_FENCE       the write is conditional on the term, in the same transaction as the write
 *   -DATT_FENCE        the write is a compare-and-set on the attempt it saw overdue
 *   -DWANT_NO_STALE    also assert that no superseded leader ever acts
 */
#define T 2
byte term = 0, holder = 0; bool lease_over = true;
byte attempt = 1; bool expired = false; byte fails = 0, real = 0;  /* real: number of expiries that truly happened */
byte actions = 0;         /* acts by a superseded leader */

active proctype Clock() {
end: do
  :: atomic { !lease_over -> lease_over = true }
  :: atomic { !expired && real < T -> expired = true; real++ }
  od
}
proctype Sup(byte me) {
  byte my = 0, saw = 0;
end: do
  :: atomic { lease_over && term < 3 -> term++; holder = me; my = term; lease_over = false }
  :: atomic { my > 0 && expired -> saw = attempt }      /* SELECT expired steps */
     /* ... SIGSTOP for any time ... */
     if
#ifdef CHECK_LEASE
     :: !(holder == me && !lease_over) -> saw = 0
     :: holder == me && !lease_over ->
#else
     :: true ->
#endif
        /* ... or here ... */
        atomic {
          if
          :: (
#ifdef TERM_FENCE
              term == my &&
#endif
#ifdef ATT_FENCE
              attempt == saw && expired &&
#endif
              true) ->
              if :: my != term -> actions++ :: else -> skip fi;
              fails++; attempt++; expired = false;
              assert(fails <= real)      /* one expiry is counted once */
#ifdef WANT_NO_STALE
              ; assert(actions == 0)     /* no act by a superseded leader */
#endif
          :: else -> skip
          fi; saw = 0
        }
     fi
  od
}
init { atomic { run Sup(1); run Sup(2) } }
