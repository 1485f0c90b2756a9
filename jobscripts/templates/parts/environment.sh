%each module
module load {{it}}
%end
%if environment
# shellcheck source=/dev/null
source {{environment}}/bin/activate
%end
%each export
export {{it}}
%end
