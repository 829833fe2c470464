/* cancel.pml: cancel against completion.
 *
 * A cancel, the task's own complete-by and the death of its Scheduler may come at any moment: while the task is pending, while a
 * request waits, is taken, answered or overdue, while the last reply is being decided, after the end. What is committed first wins,
 * and a cancel that was answered "applied" is never lost (R6). The rules, the acts and what is checked: engine.inc, acts.inc.
 *
 * With -DSTOPPED a Scheduler may rest with a Decision in its hands ("the reply is here: processed"); meanwhile it is declared dead
 * and another one takes over. The epoch of the task's lock refuses what it writes then.
 */
#ifndef MOST
#define MOST 16
#endif
#ifndef CANCELS
#define CANCELS 1
#endif
#ifndef UNDOS
#define UNDOS 1
#endif
#ifndef EXPIRES
#define EXPIRES 1
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifdef STOPPED
#define N 1
#endif
#include "engine.inc"

#ifdef STOPPED
active proctype Stopped() {
end: do
  :: atomic { state == processing && goal == forward && msg[0] == m_done && row[0] == taken && !paused ->
       paused = true; kept = epoch }
  :: atomic { paused ->                /* the commit names the request that was answered, and the epoch */
       if
#ifdef OFF_EPOCH
       :: msg[0] == m_done && row[0] == taken && doing[0] == DO ->
#else
       :: epoch == kept && msg[0] == m_done && row[0] == taken && doing[0] == DO ->
#endif
          st[0] = s_done; doing[0] = NOTHING; row[0] = none; msg[0] = m_none; state = processed
       :: else -> skip
       fi;
       paused = false }
  od
}
#endif
