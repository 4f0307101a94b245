//! `feedline dlio ...`: dlio_benchmark under feedline's own name. The front end itself is in `crate::dlio`.

pub(crate) use crate::dlio::{DlioFlags, dlio};

pub(crate) const EXAMPLES: &str = "\
Examples:
  feedline dlio workload=unet3d_h100 ++workload.workflow.generate_data=True ++workload.workflow.train=False
  feedline dlio workload=unet3d_h100 ++workload.dataset.data_folder=/mnt/fast/unet3d ++hydra.run.dir=results/1
  mpirun -n 8 feedline dlio workload=unet3d_h100 ++workload.dataset.data_folder=/mnt/fast/unet3d
  ln -s $(which feedline) ~/bin/dlio_benchmark         the name that mlpstorage starts; see 'feedline docs dlio'";
