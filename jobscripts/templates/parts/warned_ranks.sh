trap 'kill -USR1 "$ranks"' USR1
"${launch[@]}" {{command}} &
ranks=$!
while kill -0 "$ranks" 2>/dev/null; do
  wait "$ranks"  # a signal ends it, too; the ranks go on
done
wait "$ranks"  # bash keeps the status of ranks that have ended
status=$?
