"""The ground: clocks, durations, ids, texts, threads and addresses. It knows nothing of tasks."""
