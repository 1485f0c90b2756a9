trap 'kill -USR1 "$ranks"' USR1
"${launch[@]}" {{command}} &
ranks=$!
while kill -0 "$ranks" 2>/dev/null; do
  wait "$ranks"  # a signal to this script also ends `wait`, while the ranks go on running
done
wait "$ranks"  # this second wait returns the exit code of the ranks
status=$?
