trap 'kill -USR1 "$ranks"' USR1
"${launch[@]}" {{command}} &
ranks=$!
wait "$ranks"
status=$?
while [ "$status" -gt 128 ]; do  # perhaps a signal ended the wait, and not the ranks
  alive=yes
  kill -0 "$ranks" 2>/dev/null || alive=
  wait "$ranks"
  again=$?
  [ "$again" = 127 ] || status=$again  # 127: the first wait was told the status
  [ "$alive" ] || break
done
